//! How a process gives up the rights of root: its own view of the files, and another user.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::libc::O_PATH;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl;
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set,
    set_capabilities,
};

use super::files::{make_dir, set_mode};

/// What nothing in these mounts may do.
const RESTRICTED: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV).union(MsFlags::MS_NOEXEC);
/// The mode of a directory on the way to one that is shown.
const PASSABLE: u32 = 0o755;
const NONE: Option<&str> = None;

/// The capabilities of a mux that is root, as under the units for pods: reaching logs in directories
/// of other users, and large pipes.
pub(crate) const ROOT_MUX: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::SYS_RESOURCE);

/// Gives this process its own view of the files: directories in `hidden` are empty and read-only,
/// but for the directories in `shown`, and processes of other users are not in `/proc`. What does
/// not exist is skipped. Mounts that others make elsewhere later are seen. This fails without
/// `CAP_SYS_ADMIN`.
pub(crate) fn hide(hidden: &[PathBuf], shown: &[PathBuf]) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_SLAVE, NONE)?;
    // Before anything covers them.
    let shown: Vec<(PathBuf, File)> = shown.iter().filter_map(|dir| open(dir).ok()).collect();
    for dir in hidden.iter().filter_map(|dir| dir.canonicalize().ok()) {
        mount(Some("tmpfs"), &dir, Some("tmpfs"), RESTRICTED, Some("mode=0755"))?;
        for (path, file) in shown.iter().filter(|(path, _)| path.starts_with(&dir)) {
            make_way(&dir, path)?;
            let from = format!("/proc/self/fd/{}", file.as_raw_fd());
            mount(Some(&*from), path, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
        }
        let closed = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY | RESTRICTED;
        mount(NONE, &dir, NONE, closed, NONE)?;
    }
    // Kernels before 5.8 refuse the word. There the option would hold for every view. A container
    // may not have a view of its own.
    let hides = Some("hidepid=invisible");
    if let Err(e) = mount(Some("proc"), "/proc", Some("proc"), RESTRICTED, hides) {
        log::debug!("hiding the processes of other users: {e}");
    }
    Ok(())
}

/// Makes a directory below another, with those between, which every user may pass.
fn make_way(dir: &Path, path: &Path) -> io::Result<()> {
    let below = path.strip_prefix(dir).unwrap_or(path);
    let mut way = dir.to_owned();
    for name in below {
        way.push(name);
        make_dir(&way)?;
        set_mode(&way, PASSABLE)?;
    }
    Ok(())
}

/// A directory without links in its path, and a way to it.
fn open(dir: &Path) -> io::Result<(PathBuf, File)> {
    let path = dir.canonicalize()?;
    let file = OpenOptions::new().read(true).custom_flags(O_PATH).open(&path)?;
    Ok((path, file))
}

/// Becomes this user for good, without capabilities, with the groups that `/etc/group` has it in.
pub(crate) fn become_user(uid: Uid, gid: Gid) -> io::Result<()> {
    // Not by initgroups(3): in a static program it would load libraries.
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    setgroups(&groups(uid, gid, &read("/etc/passwd"), &read("/etc/group")))?;
    drop_bounding_set()?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    // The kernel does that at a change of users, unless the system was told otherwise.
    Ok(prctl::set_dumpable(false)?)
}

/// Gives up all capabilities of this thread but these, and the way to get more by executing another
/// program. Those of a process without are the same afterwards.
pub(crate) fn keep_capabilities(kept: CapabilitySet) -> io::Result<()> {
    prctl::set_no_new_privs()?;
    let kept = capabilities(None)?.permitted & kept;
    let inheritable = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?)
}

/// Takes all capabilities out of the set that programs can get (capabilities(7)).
pub(crate) fn drop_bounding_set() -> io::Result<()> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match remove_capability_from_bounding_set(one) {
            // The one after the last.
            Err(Errno::INVAL) => break,
            removed => removed?,
        }
    }
    Ok(())
}

/// The groups of a user, whose own one comes first, by passwd(5) and group(5).
fn groups(uid: Uid, gid: Gid, users: &str, groups: &str) -> Vec<Gid> {
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
    let is_user = |line: &&str| number(line.split(':').nth(2)) == Some(uid.as_raw());
    let name = users.lines().find(is_user).and_then(|line| line.split(':').next());
    let has_user = |line: &&str| {
        let mut members = line.split(':').nth(3).unwrap_or_default().split(',');
        name.is_some_and(|name| members.any(|member| member == name))
    };
    let more = groups.lines().filter(has_user).filter_map(|line| number(line.split(':').nth(2)));
    [gid].into_iter().chain(more.map(Gid::from_raw).filter(|more| *more != gid)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_its_own_group_and_those_that_name_it() {
        let users = "root:x:0:0::/:/bin/sh\nmux:x:900:901::/:/bin/false\nmuxer:x:902:902::/:/\nx\n";
        let listed =
            "root:x:0:\nmux:x:901:mux\ndialout:x:20:you,mux\ntty:x:5:muxer\nodd:x:y:mux\n\n";
        let of = |uid, gid| -> Vec<u32> {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            groups(uid, gid, users, listed).into_iter().map(Gid::as_raw).collect()
        };
        assert_eq!(of(900, 901), [901, 20]);
        assert_eq!(of(902, 902), [902, 5]);
        assert_eq!(of(903, 7), [7]);
    }
}
