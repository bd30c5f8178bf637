//! A container's own view of the file system, made of mounts in a namespace of its own. Linux only.
//! Must not know pods, and never writes outside the directories it was given.
//!
//! Why a new root and not mounts on the machine's: a path such as `/data` or `/home/ray/samples` often does not exist, and
//! to create it would change the machine for everyone. So the machine's root is bound to an empty directory, and where a
//! directory on the way to a target lacks the next name, a small tmpfs takes its place that holds the same entries, each
//! bound from the original, plus the missing name. (An overlay would do too, but not on every file system below it.)

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{chdir, getgid, getuid, pivot_root};

use super::order::{Mount, Root};

/// Why a view could not be made: what was tried and what the kernel said.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {cause}")]
pub(super) struct RootError {
    step: String,
    cause: std::io::Error,
}

/// Puts this process, which must have one thread only, into a namespace with the root that is described. Everything it
/// starts afterwards sees the same.
pub(super) fn enter(root: &Root) -> Result<(), RootError> {
    let flags = if root.user { CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS } else { CloneFlags::CLONE_NEWNS };
    let (uid, gid) = (getuid(), getgid());
    unshare(flags).or_step("a namespace for mounts")?;
    if root.user {
        // The same user inside as outside: programs see no difference, and files keep their owners.
        fs::write("/proc/self/setgroups", "deny").or_step("setgroups")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).or_step("uid_map")?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).or_step("gid_map")?;
    }
    // Nothing that is done here reaches the machine's mounts.
    plain_mount(None, Path::new("/"), MsFlags::MS_REC | MsFlags::MS_PRIVATE).or_step("private mounts")?;
    bind(Path::new("/"), &root.at)?;
    // Else every entry bound from the machine's root would bring a copy of the new root along.
    plain_mount(None, &root.at, MsFlags::MS_UNBINDABLE).or_step("an unbindable root")?;
    graft(Some(Path::new("/")), &root.at, &Tree::of(&root.mounts))?;
    chdir(&root.at).or_step("the new root")?;
    pivot_root(".", ".").or_step("pivot_root")?;
    umount2(".", MntFlags::MNT_DETACH).or_step("the old root")?;
    plain_mount(None, Path::new("/"), MsFlags::MS_PRIVATE).or_step("private mounts")?;
    chdir("/").or_step("the new root")
}

/// Mounts by path component; a parent is always placed before what lies in it.
#[derive(Default)]
struct Tree<'a> {
    mount: Option<&'a Mount>,
    below: BTreeMap<OsString, Tree<'a>>,
}

impl<'a> Tree<'a> {
    fn of(mounts: &'a [Mount]) -> Self {
        let mut tree = Tree::default();
        for mount in mounts {
            let mut at = &mut tree;
            for part in resolve_links(&mount.target).components() {
                if let Component::Normal(name) = part {
                    at = at.below.entry(name.to_owned()).or_default();
                }
            }
            at.mount = Some(mount);
        }
        tree
    }

    /// Whether what stands for this at the end is a file.
    fn is_file(&self) -> bool {
        self.mount.is_some_and(|m| m.source.is_file())
    }

    /// Whether `host` can serve as the place for this.
    fn fits(&self, host: &Path) -> bool {
        fs::symlink_metadata(host).is_ok_and(|meta| if self.is_file() { meta.is_file() } else { meta.is_dir() })
    }
}

/// The target with the symbolic links of its existing part resolved (`/var/run` is `/run` on most machines).
fn resolve_links(target: &Path) -> PathBuf {
    for base in target.ancestors() {
        if let (Ok(real), Ok(rest)) = (fs::canonicalize(base), target.strip_prefix(base)) {
            return if rest.as_os_str().is_empty() { real } else { real.join(rest) };
        }
    }
    target.to_owned()
}

/// Makes `at`, which shows `host` (or is an empty directory where there is no `host`), show the tree as well.
fn graft(host: Option<&Path>, at: &Path, tree: &Tree<'_>) -> Result<(), RootError> {
    if let Some(mount) = tree.mount {
        return graft_volume(mount, at, tree);
    }
    let complete = tree.below.iter().all(|(name, child)| host.is_some_and(|h| child.fits(&h.join(name))));
    if !complete {
        mirror(host, at, tree)?;
    }
    for (name, child) in &tree.below {
        let place = at.join(name);
        let below = host.map(|h| h.join(name)).filter(|h| child.fits(h));
        if !complete {
            make_place(&place, child.is_file())?;
            if let (Some(original), None) = (&below, child.mount) {
                bind(original, &place)?;
            }
        }
        graft(below.as_deref(), &place, child)?;
    }
    Ok(())
}

/// Binds a volume, then what lies within it; places missing in the volume are created there, as a kubelet does.
fn graft_volume(mount: &Mount, at: &Path, tree: &Tree<'_>) -> Result<(), RootError> {
    for (name, child) in &tree.below {
        make_place(&mount.source.join(name), child.is_file())?;
    }
    bind(&mount.source, at)?;
    if mount.read_only {
        // Flags of the file system below must be repeated, else a user namespace may not change any.
        let kept = kept_flags(&mount.source);
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | kept;
        plain_mount(None, at, flags).or_step(format!("{} read-only", at.display()))?;
    }
    for (name, child) in &tree.below {
        graft(Some(&mount.source.join(name)), &at.join(name), child)?;
    }
    Ok(())
}

/// Replaces what `at` shows by a tmpfs with the same entries, but for those that the tree brings itself.
fn mirror(host: Option<&Path>, at: &Path, tree: &Tree<'_>) -> Result<(), RootError> {
    let tmpfs = mount(Some("tmpfs"), at, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some("mode=755"));
    tmpfs.or_step(format!("a tmpfs for {}", at.display()))?;
    let Some(host) = host else { return Ok(()) };
    for entry in fs::read_dir(host).or_step(format!("reading {}", host.display()))? {
        let entry = entry.or_step(format!("reading {}", host.display()))?;
        if tree.below.contains_key(&entry.file_name()) {
            continue;
        }
        let (original, place) = (entry.path(), at.join(entry.file_name()));
        let kind = entry.file_type().or_step(format!("reading {}", original.display()))?;
        if kind.is_symlink() {
            let to = fs::read_link(&original).or_step(format!("reading {}", original.display()))?;
            symlink(to, &place).or_step(format!("the link {}", place.display()))?;
        } else {
            make_place(&place, !kind.is_dir())?;
            bind(&original, &place)?;
        }
    }
    Ok(())
}

fn make_place(at: &Path, file: bool) -> Result<(), RootError> {
    let made = match (fs::symlink_metadata(at), file) {
        (Ok(_), _) => Ok(()),
        (Err(_), true) => fs::File::create(at).map(drop),
        (Err(_), false) => fs::create_dir_all(at),
    };
    made.or_step(format!("a place at {}", at.display()))
}

fn bind(source: &Path, at: &Path) -> Result<(), RootError> {
    // Recursive: a user namespace may not take a part of a tree of mounts away.
    plain_mount(Some(source), at, MsFlags::MS_BIND | MsFlags::MS_REC).or_step(format!(
        "{} at {}",
        source.display(),
        at.display()
    ))
}

fn plain_mount(source: Option<&Path>, at: &Path, flags: MsFlags) -> nix::Result<()> {
    mount(source, at, None::<&str>, flags, None::<&str>)
}

fn kept_flags(source: &Path) -> MsFlags {
    const KEPT: [(FsFlags, MsFlags); 5] = [
        (FsFlags::ST_NOSUID, MsFlags::MS_NOSUID),
        (FsFlags::ST_NODEV, MsFlags::MS_NODEV),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ];
    let there = statvfs(source).map_or(FsFlags::empty(), |s| s.flags());
    KEPT.iter().filter(|(there_flag, _)| there.contains(*there_flag)).map(|(_, keep)| *keep).collect()
}

/// Names the step that failed.
trait OrStep<T> {
    fn or_step(self, step: impl Into<String>) -> Result<T, RootError>;
}

impl<T, E: Into<std::io::Error>> OrStep<T> for Result<T, E> {
    fn or_step(self, step: impl Into<String>) -> Result<T, RootError> {
        self.map_err(|cause| RootError { step: step.into(), cause: cause.into() })
    }
}
