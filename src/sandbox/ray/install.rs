//! Whether the Ray that the sandbox relies on is there. Looks at files, starts nothing.
//! Must not know what it is used for.

use std::fs;
use std::path::{Path, PathBuf};

/// The one version whose private parts the files in `python/` change. The same as in `requirements-ray.txt`.
pub const VERSION: &str = "2.60.0";

/// Why there is no usable Ray. The text is for the person at the command line.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RayMissing {
    /// Not a virtual environment, or one without Ray.
    #[error("there is no Ray in {venv}: run `make ray`, or name another environment with --ray")]
    Absent {
        /// Where it was looked for.
        venv: PathBuf,
    },
    /// Ray of another version.
    #[error(
        "{venv} has Ray {found}, but the sandbox works with Ray {VERSION} only: run `make ray`, or name another environment with --ray"
    )]
    OtherVersion {
        /// Where it was looked for.
        venv: PathBuf,
        /// What is there.
        found: String,
    },
    /// Ray without the parts that `ray[default]` brings.
    #[error("the Ray in {venv} has no dashboard: install ray[default]=={VERSION}")]
    Incomplete {
        /// Where it was looked for.
        venv: PathBuf,
    },
}

/// The absolute path of a virtual environment that has the right Ray.
pub fn find(venv: &Path) -> Result<PathBuf, RayMissing> {
    let absent = || RayMissing::Absent { venv: venv.to_owned() };
    let root = std::path::absolute(venv).map_err(|_| absent())?;
    // The command needs no interpreter to be seen, the version stands in the name of the package's record.
    if !root.join("bin/ray").is_file() || !root.join("bin/python").exists() {
        return Err(absent());
    }
    let packages = fs::read_dir(root.join("lib")).map_err(|_| absent())?.filter_map(Result::ok);
    let packages = packages.map(|e| e.path().join("site-packages")).find(|p| p.join("ray").is_dir());
    let packages = packages.ok_or_else(absent)?;
    let found = version(&packages).ok_or_else(absent)?;
    if found != VERSION {
        return Err(RayMissing::OtherVersion { venv: venv.to_owned(), found });
    }
    if !packages.join("aiohttp").is_dir() {
        return Err(RayMissing::Incomplete { venv: venv.to_owned() });
    }
    Ok(root)
}

fn version(packages: &Path) -> Option<String> {
    let mut names = fs::read_dir(packages).ok()?.filter_map(|e| e.ok()?.file_name().into_string().ok());
    names.find_map(|n| Some(n.strip_prefix("ray-")?.strip_suffix(".dist-info")?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ray_and_another_ray_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(find(dir.path()), Err(RayMissing::Absent { .. })));
        let packages = dir.path().join("lib/python3.12/site-packages");
        for made in ["ray", "ray-2.9.0.dist-info", "aiohttp"] {
            fs::create_dir_all(packages.join(made)).unwrap();
        }
        fs::create_dir_all(dir.path().join("bin")).unwrap();
        for made in ["bin/ray", "bin/python"] {
            fs::write(dir.path().join(made), "").unwrap();
        }
        let refused = find(dir.path()).unwrap_err();
        assert!(refused.to_string().contains("has Ray 2.9.0"), "{refused}");
        fs::rename(packages.join("ray-2.9.0.dist-info"), packages.join(format!("ray-{VERSION}.dist-info"))).unwrap();
        assert_eq!(find(dir.path()).unwrap(), dir.path());
    }
}
