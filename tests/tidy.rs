//! The rules of the house that a compiler does not check: purity, direction of dependencies, shape of files.
//! Reads sources as text. Each rule has a name, a place and a reason, which the failure prints.

use std::fs;
use std::path::{Path, PathBuf};

/// One rule: in files below `places` (and not in `except`), no line of code contains one of `words`.
struct Rule {
    name: &'static str,
    places: &'static [&'static str],
    except: &'static [&'static str],
    words: &'static [&'static str],
}

/// The parts that take what was seen and the time, and wait for nothing.
const PURE: &[&str] = &[
    "src/api/",
    "src/row/",
    "src/plan/",
    "src/engine/",
    "src/shell/informer/core",
    "src/shell/heartbeat/requests",
    "src/sandbox/apiserver/",
    "src/sandbox/world/",
    "shards/src/",
];

const RULES: &[Rule] = &[
    Rule {
        name: "the core does not wait",
        places: PURE,
        except: &["src/sandbox/world/driver"],
        words: &["async fn", "async move", ".await", "tokio::", "std::thread", "futures::"],
    },
    Rule {
        name: "the core asks no clock and throws no dice",
        places: PURE,
        except: &["src/sandbox/world/driver"],
        words: &[
            "Instant::now",
            "SystemTime",
            "Timestamp::now",
            "rand::",
            "fastrand::f64()",
            "Rng::new()",
            "std::env::var",
        ],
    },
    Rule {
        name: "the core does no I/O",
        places: PURE,
        except: &["src/sandbox/world/driver"],
        words: &[
            "std::fs",
            "std::net::Tcp",
            "std::net::Udp",
            "std::io::",
            "std::process",
            "kube::Client",
            "reqwest::",
            "hyper::",
            "println!",
            "eprintln!",
        ],
    },
    Rule {
        name: "order is part of the answer: no randomly ordered maps in the core",
        places: PURE,
        except: &["src/sandbox/world/driver"],
        words: &["HashMap", "HashSet"],
    },
    Rule {
        name: "api and row know nothing above them",
        places: &["src/api/", "src/row/"],
        except: &[],
        words: &["crate::plan", "crate::engine", "crate::shell", "crate::serve", "crate::cli", "crate::sandbox"],
    },
    Rule {
        name: "plans know nothing above them",
        places: &["src/plan/"],
        except: &[],
        words: &["crate::engine", "crate::shell", "crate::serve", "crate::cli", "crate::sandbox"],
    },
    Rule {
        name: "the engine knows nothing above it",
        places: &["src/engine/"],
        except: &[],
        words: &["crate::shell", "crate::serve", "crate::cli", "crate::sandbox"],
    },
    Rule {
        name: "the shell knows nothing above it",
        places: &["src/shell/"],
        except: &[],
        words: &["crate::serve", "crate::cli", "crate::sandbox"],
    },
    Rule {
        name: "the sandbox shares the wire and quantities with the product, not its wits",
        places: &["src/sandbox/"],
        except: &[],
        words: &[
            "crate::engine",
            "crate::shell",
            "crate::row",
            "crate::plan::place",
            "crate::plan::reserve",
            "crate::plan::gang",
        ],
    },
    Rule {
        name: "shards knows nothing of Ray or RayFleet",
        places: &["shards/src/"],
        except: &[],
        words: &["rayfleet::", "RayJob", "RayCluster", "kube::"],
    },
    Rule {
        name: "what is not built refuses with a clear error",
        places: &["src/", "shards/", "tests/", "bench/"],
        except: &["tests/tidy.rs"],
        words: &["todo!(", "unimplemented!(", "dbg!(", "TODO", "FIXME", "XXX"],
    },
    Rule {
        name: "no server-side apply, no deletecollection in the product (E1)",
        places: &["src/plan/", "src/engine/", "src/shell/"],
        except: &[],
        words: &["Patch::Apply", "apply-patch", "deletecollection", "generateName"],
    },
];

/// Words that say nothing about what a file or a type holds.
const EMPTY_WORDS: &[&str] = &["manager", "helper", "util", "utils", "common", "misc"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<(String, String)> {
    fn walk(dir: &Path, into: &mut Vec<PathBuf>) {
        let mut entries: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                walk(&path, into);
            } else if path.extension().is_some_and(|e| e == "rs") {
                into.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    for top in ["src", "shards", "tests", "bench"] {
        walk(&root().join(top), &mut paths);
    }
    paths
        .into_iter()
        .filter(|p| !p.components().any(|c| c.as_os_str() == "target"))
        .map(|p| {
            let name = p.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
            (name, fs::read_to_string(&p).expect("a source file can be read"))
        })
        .collect()
}

/// The code of a line: without comments. Good enough for rules about words.
fn code(line: &str) -> &str {
    let trimmed = line.trim_start();
    if trimmed.starts_with("//") { "" } else { line.split(" // ").next().unwrap_or("") }
}

/// Whether the word stands in the line, not as the end of a longer one (`fastrand::` is not `rand::`).
fn stands_in(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let starts_in_word = word.starts_with(is_part);
    line.match_indices(word).any(|(at, _)| !starts_in_word || !line[..at].ends_with(is_part))
}

/// Lines that are not for tests only: tests may do what the core may not. An item behind `#[cfg(test)]` at the left margin
/// ends where it began, or with the next closing bracket at the left margin (rustfmt).
fn product_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    enum At {
        Product,
        Attributes,
        TestItem,
    }
    let mut at = At::Product;
    let numbered = text.lines().enumerate().map(|(i, line)| (i + 1, line));
    numbered.filter(move |(_, line)| {
        let ends = line.ends_with(';') || line.ends_with('}');
        at = match at {
            At::Product if line.starts_with("#[cfg(test)]") => At::Attributes,
            At::Product => return true,
            At::Attributes if line.starts_with("#[") || line.starts_with("//") => At::Attributes,
            At::Attributes if ends => At::Product,
            At::TestItem if line.starts_with(['}', ']', ')']) => At::Product,
            At::Attributes | At::TestItem => At::TestItem,
        };
        false
    })
}

/// Every breach of `rules` in one file.
fn breaches(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for rule in RULES {
        let inside =
            rule.places.iter().any(|p| name.starts_with(p)) && !rule.except.iter().any(|e| name.starts_with(e));
        if !inside {
            continue;
        }
        for (number, line) in product_lines(text) {
            if let Some(word) = rule.words.iter().find(|w| stands_in(code(line), w)) {
                found.push(format!("{name}:{number}: `{word}`: {}", rule.name));
            }
        }
    }
    found
}

/// Files that are compiled for tests only: `#[cfg(test)] mod name;` in their parent.
fn test_only(sources: &[(String, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in sources {
        let folder = match name.rsplit_once('/') {
            Some((folder, "mod.rs" | "lib.rs" | "main.rs")) => folder.to_owned(),
            _ => name.trim_end_matches(".rs").to_owned(),
        };
        let lines: Vec<_> = text.lines().collect();
        for pair in lines.windows(2) {
            if pair[0].trim() == "#[cfg(test)]"
                && let Some(module) = pair[1].trim().trim_start_matches("pub(crate) ").strip_prefix("mod ")
                && let Some(module) = module.strip_suffix(';')
            {
                found.push(format!("{folder}/{module}"));
            }
        }
    }
    found
}

#[test]
fn the_core_is_pure_and_dependencies_point_one_way() {
    let sources = sources();
    let skipped = test_only(&sources);
    let found: Vec<_> = sources
        .iter()
        .filter(|(name, _)| !skipped.iter().any(|module| name.starts_with(module.as_str())))
        .flat_map(|(name, text)| breaches(name, text))
        .collect();
    assert!(found.is_empty(), "{} breaches:\n{}", found.len(), found.join("\n"));
}

#[test]
fn an_await_in_a_plan_or_the_engine_is_found() {
    for place in ["src/plan/place/mod.rs", "src/engine/mod.rs", "src/row/table.rs", "shards/src/seat.rs"] {
        let text = "//! x\nfn f() {\n    client.get().await;\n}\n";
        assert_eq!(breaches(place, text), vec![format!("{place}:3: `.await`: the core does not wait")]);
    }
    assert!(breaches("src/shell/run.rs", "//! x\nasync fn f() { g().await }\n").is_empty());
}

#[test]
fn a_breach_is_found_also_behind_what_is_for_tests_only() {
    let wait = "fn f() {\n    g().await;\n}\n";
    for tests in [
        "#[cfg(test)]\nmod tests;\n",
        "#[cfg(test)]\n#[path = \"x.rs\"]\nmod tests;\n",
        "#[cfg(test)]\nmod tests {\n    fn f() { g().await }\n\n    fn h() {\n        g().await;\n    }\n}\n",
        "#[cfg(test)]\nthread_local! {\n    static X: Cell<u64> = f().await;\n}\n",
        "#[cfg(test)]\npub(crate) fn f() -> u64 {\n    g().await\n}\n",
        "#[cfg(test)]\npub(crate) use x::f;\n",
    ] {
        let text = format!("{tests}{wait}{tests}");
        let line = tests.lines().count() + 2;
        let found = format!("src/engine/mod.rs:{line}: `.await`: the core does not wait");
        assert_eq!(breaches("src/engine/mod.rs", &text), [found], "{text}");
    }
}

#[test]
fn the_sandboxs_scheduler_does_not_share_the_placements_arithmetic() {
    let text = "//! x\nuse crate::plan::place::verdict;\n";
    assert_eq!(breaches("src/sandbox/world/scheduler/mod.rs", text).len(), 1);
    assert!(
        breaches("src/sandbox/world/scheduler/mod.rs", "//! x\nuse crate::plan::quantity::Resources;\n").is_empty()
    );
}

#[test]
fn every_file_says_in_its_first_line_what_it_knows() {
    let silent: Vec<_> =
        sources().into_iter().filter(|(_, text)| !text.starts_with("//!")).map(|(name, _)| name).collect();
    assert!(silent.is_empty(), "first line must be a `//!` sentence: {silent:?}");
}

#[test]
fn files_stay_small_enough_to_know() {
    let long: Vec<_> = sources()
        .into_iter()
        .map(|(name, text)| (product_lines(&text).count(), name))
        .filter(|(lines, _)| *lines > 900)
        .collect();
    assert!(long.is_empty(), "longer than 900 lines: {long:?}");
}

#[test]
fn files_are_named_after_what_they_hold() {
    let empty: Vec<_> = sources()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| {
            let stem = name.rsplit('/').next().unwrap_or("").trim_end_matches(".rs");
            stem.split('_').any(|word| EMPTY_WORDS.contains(&word))
        })
        .collect();
    assert!(empty.is_empty(), "names that say nothing: {empty:?}");
}

#[test]
fn only_one_tls_provider_is_linked() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock is committed");
    assert!(!lock.contains("name = \"aws-lc"), "two rustls providers panic at the first client; keep `ring` alone");
}

/// A link leads out of the checkout, to a place of one machine.
#[test]
fn nothing_in_the_tree_is_a_symbolic_link() {
    /// What a machine makes for itself, and git does not keep.
    const OWN: &[&str] = &[".git", ".venv", ".planes", ".tools", ".sandbox", "target"];
    fn links(dir: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).expect("the checkout can be read").flatten() {
            let kind = entry.file_type().expect("the checkout can be read");
            if OWN.iter().any(|own| entry.file_name() == *own) {
                continue;
            }
            if kind.is_symlink() {
                into.push(entry.path());
            } else if kind.is_dir() {
                links(&entry.path(), into);
            }
        }
    }
    let mut found = Vec::new();
    links(&root(), &mut found);
    assert!(found.is_empty(), "symbolic links in the repository: {found:?}");
    // With a slash at its end the rule would not match a link of that name, and git would keep it.
    let ignored = fs::read_to_string(root().join(".gitignore")).expect(".gitignore is committed");
    assert!(ignored.lines().any(|line| line == "/.venv"), "{ignored}");
}
