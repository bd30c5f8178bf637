//! Readiness, liveness and startup probes: what a container's manifest asks for, and the question put to a loopback port.
//! Must not know what follows from the answers.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::ports::PodPorts;
use super::text;

/// One probe, ready to be asked again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// What to ask.
    pub question: Question,
    /// Until the first time.
    pub delay: Duration,
    /// Between two.
    pub period: Duration,
    /// For one.
    pub timeout: Duration,
    /// Successes in a row that count.
    pub successes: u32,
    /// Failures in a row that count.
    pub failures: u32,
}

/// What is asked of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Each of these answers well, in order.
    Http(Vec<Get>),
    /// A port accepts.
    Tcp {
        /// The port on loopback.
        real: u16,
    },
    /// This program, run like the container, ends with 0.
    Exec(Vec<String>),
    /// Nothing can be asked; why.
    Impossible(String),
}

/// An HTTP request to loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Get {
    /// Port on loopback.
    pub real: u16,
    /// Path with query.
    pub path: String,
    /// Header lines.
    pub headers: Vec<(String, String)>,
    /// A text that the answer must have.
    pub holds: Option<String>,
}

/// The probe under `key` of a container. Defaults are Kubernetes'.
pub fn of(container: &Value, key: &str, ports: &PodPorts) -> Option<Probe> {
    let probe = container.get(key).filter(|p| p.is_object())?;
    let number = |name: &str, default: u64| probe[name].as_u64().unwrap_or(default);
    Some(Probe {
        question: question(probe, container, ports),
        delay: Duration::from_secs(number("initialDelaySeconds", 0)),
        period: Duration::from_secs(number("periodSeconds", 10).max(1)),
        timeout: Duration::from_secs(number("timeoutSeconds", 1).max(1)),
        successes: number("successThreshold", 1).max(1) as u32,
        failures: number("failureThreshold", 3).max(1) as u32,
    })
}

fn question(probe: &Value, container: &Value, ports: &PodPorts) -> Question {
    if let Some(get) = probe.get("httpGet") {
        if text(&get["scheme"]) == "HTTPS" {
            return Question::Impossible("HTTPS probes are not supported in the sandbox".into());
        }
        let headers = get["httpHeaders"].as_array().into_iter().flatten();
        return match port(&get["port"], container, ports) {
            Some(real) => Question::Http(vec![Get {
                real,
                path: get["path"].as_str().unwrap_or("/").to_owned(),
                headers: headers.map(|h| (text(&h["name"]).to_owned(), text(&h["value"]).to_owned())).collect(),
                holds: None,
            }]),
            None => Question::Impossible(format!("nothing listens on port {}", get["port"])),
        };
    }
    if let Some(tcp) = probe.get("tcpSocket") {
        return match port(&tcp["port"], container, ports) {
            Some(real) => Question::Tcp { real },
            None => Question::Impossible(format!("nothing listens on port {}", tcp["port"])),
        };
    }
    let words = probe["exec"]["command"].as_array().into_iter().flatten();
    let argv: Vec<String> = words.filter_map(Value::as_str).map(str::to_owned).collect();
    if argv.is_empty() {
        return Question::Impossible("this kind of probe is not supported in the sandbox".into());
    }
    fetches(&argv, ports).map_or(Question::Exec(argv), Question::Http)
}

fn port(port: &Value, container: &Value, ports: &PodPorts) -> Option<u16> {
    let name = match port {
        Value::Number(number) => number.to_string(),
        Value::String(name) => {
            let own = container["ports"].as_array().into_iter().flatten().find(|p| p["name"] == *name);
            own.map_or(name.clone(), |p| p["containerPort"].to_string())
        }
        _ => return None,
    };
    ports.of(&name)
}

/// The requests behind `bash -c "wget … http://localhost:P/path | grep success && …"`, as KubeRay's probes are. They are
/// carried out without wget, which may be missing, and which cannot be told that the port is another.
fn fetches(argv: &[String], ports: &PodPorts) -> Option<Vec<Get>> {
    let [shell, flag, script] = argv else { return None };
    if !(shell.ends_with("sh") && flag == "-c") {
        return None;
    }
    script.split("&&").map(|step| fetch(step, ports)).collect()
}

fn fetch(step: &str, ports: &PodPorts) -> Option<Get> {
    let (get, check) = step.split_once('|')?;
    if get.split_whitespace().next() != Some("wget") {
        return None;
    }
    let url = get.split_whitespace().find_map(|w| w.strip_prefix("http://localhost:"))?;
    let (port, path) = url.split_once('/')?;
    let mut check = check.split_whitespace();
    let holds = check.next().filter(|w| *w == "grep").and_then(|_| check.next())?;
    Some(Get { real: ports.of(port)?, path: format!("/{path}"), headers: vec![], holds: Some(holds.to_owned()) })
}

/// Sends it and says why not, if so. The caller bounds the time.
pub async fn get(get: &Get) -> Result<(), String> {
    // An answer of Ray's is a few bytes; more is not looked at.
    const BODY_BYTES: u64 = 64 * 1024;
    let talk = async {
        let mut stream = TcpStream::connect(("127.0.0.1", get.real)).await?;
        let mut request = format!("GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", get.path);
        for (name, value) in &get.headers {
            request.extend([name, ": ", value, "\r\n"]);
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(BODY_BYTES).read_to_end(&mut answer).await?;
        std::io::Result::Ok(String::from_utf8_lossy(&answer).into_owned())
    };
    let answer = talk.await.map_err(|e| format!("Get \"http://localhost{}\": {e}", get.path))?;
    let status = answer.split_whitespace().nth(1).and_then(|s| s.parse::<u16>().ok()).unwrap_or(0);
    if !(200..400).contains(&status) {
        return Err(format!("HTTP probe failed with statuscode: {status}"));
    }
    match &get.holds {
        Some(text) if !answer.contains(text.as_str()) => Err(format!("the answer has no \"{text}\"")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn kuberays_wget_probe_becomes_requests_to_the_real_ports() {
        let script = "wget --tries 1 -T 2 -q -O- http://localhost:52365/api/local_raylet_healthz | grep success && \
                      wget --tries 1 -T 10 -q -O- http://localhost:8265/api/gcs_healthz | grep success";
        let container = json!({"readinessProbe": {"exec": {"command": ["bash", "-c", script]}, "initialDelaySeconds": 10,
                               "timeoutSeconds": 5, "periodSeconds": 5, "failureThreshold": 10}});
        let ports = PodPorts { real: [(52365, 21000), (8265, 21001)].into(), ..PodPorts::default() };
        let probe = of(&container, "readinessProbe", &ports).unwrap();
        let Question::Http(gets) = &probe.question else { panic!("{probe:?}") };
        let asked: Vec<_> = gets.iter().map(|g| (g.real, g.path.as_str(), g.holds.as_deref())).collect();
        assert_eq!(
            asked,
            [(21000, "/api/local_raylet_healthz", Some("success")), (21001, "/api/gcs_healthz", Some("success"))]
        );
        assert_eq!((probe.delay, probe.failures), (Duration::from_secs(10), 10));
    }

    #[test]
    fn another_script_is_run_as_it_is() {
        let container = json!({"livenessProbe": {"exec": {"command": ["bash", "-c", "test -f /tmp/x"]}}});
        let probe = of(&container, "livenessProbe", &PodPorts::default()).unwrap();
        assert!(matches!(probe.question, Question::Exec(_)));
    }
}
