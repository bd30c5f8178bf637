//! `rayfleet crds`: the custom resource definitions as text, files, or checked against files.
//! Must not know what stands in them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::End;
use super::output;
use crate::api::crds;

/// Options of `rayfleet crds`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  rayfleet crds | kubectl apply --server-side -f -     install them on a hub
  rayfleet crds --write crds                           write one file per definition
  rayfleet crds --check crds                           exit 1 if a file differs")]
pub(crate) struct CrdsArgs {
    /// Write one file per definition into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    write: Option<PathBuf>,
    /// Compare with the files in this folder (default: crds); exit code 1 if they differ
    #[arg(long, value_name = "DIR", num_args = 0..=1, default_missing_value = "crds")]
    check: Option<PathBuf>,
}

pub(crate) fn run(args: &CrdsArgs) -> Result<End> {
    let files = crds::render();
    if let Some(folder) = &args.write {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        for (name, text) in &files {
            let path = folder.join(name);
            std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        output::print(&format!("{} definitions written to {}", files.len(), folder.display()))?;
        return Ok(End::Done);
    }
    if let Some(folder) = &args.check {
        let wrong: Vec<String> = files.iter().filter_map(|(name, text)| difference(folder, name, text)).collect();
        if wrong.is_empty() {
            output::print(&format!("{} definitions equal those in {}", files.len(), folder.display()))?;
            return Ok(End::Done);
        }
        output::print(&format!("{}\nright: rayfleet crds --write {}", wrong.join("\n"), folder.display()))?;
        return Ok(End::Differs);
    }
    let texts: Vec<&str> = files.values().map(|text| text.trim_start_matches("---\n")).collect();
    output::print(&texts.join("---\n"))?;
    Ok(End::Done)
}

fn difference(folder: &Path, name: &str, text: &str) -> Option<String> {
    let path = folder.join(name);
    match std::fs::read_to_string(&path) {
        Ok(there) if there == text => None,
        Ok(_) => Some(format!("{} differs", path.display())),
        Err(e) => Some(format!("{} cannot be read: {}", path.display(), e.kind())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_passes_the_check_and_a_change_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let check = CrdsArgs { write: None, check: Some(path.clone()) };
        assert_eq!(run(&check).unwrap(), End::Differs);
        run(&CrdsArgs { write: Some(path.clone()), check: None }).unwrap();
        assert_eq!(run(&check).unwrap(), End::Done);
        std::fs::write(path.join("ray.io_rayjobs.yaml"), "x").unwrap();
        assert_eq!(run(&check).unwrap(), End::Differs);
    }
}
