//! Programs that gain privileges when they start. The loader preloads nothing into them (ld.so(8), "secure-execution mode").

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::StatVfsMountFlags;

const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
/// Without it, SETGID does not change the group.
const GROUP_MAY_EXECUTE: u32 = 0o010;
/// Where a file's capabilities are.
const CAPABILITIES: &str = "security.capability";
/// The flag of capabilities that are effective from the start (`VFS_CAP_FLAGS_EFFECTIVE`).
const EFFECTIVE: u32 = 1;

/// How a program gains privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gain {
    /// It becomes another user or group.
    Identity,
    /// By capabilities of its file.
    Capabilities,
}

impl Gain {
    /// What a file gains for this process, if the kernel has it gain anything.
    pub(super) fn of(path: &Path, file: &fs::Metadata) -> Option<Self> {
        if rustix::fs::statvfs(path).is_ok_and(|at| at.f_flag.contains(StatVfsMountFlags::NOSUID)) {
            return None;
        }
        let (user, group) = (rustix::process::getuid(), rustix::process::getgid());
        let changes =
            is_changed(file.mode(), file.uid() != user.as_raw(), file.gid() != group.as_raw());
        if changes && !rustix::thread::no_new_privs().unwrap_or(false) {
            return Some(Self::Identity);
        }
        let mut capabilities = [0; 64];
        let read = rustix::fs::getxattr(path, CAPABILITIES, &mut capabilities[..]).unwrap_or(0);
        // To root they are nothing new, says capabilities(7).
        let gains = !user.is_root() && are_given(capabilities.get(..read).unwrap_or_default());
        gains.then_some(Self::Capabilities)
    }

    /// What is the case, and what to do.
    pub(super) const fn advice(self) -> &'static str {
        match self {
            Self::Identity => {
                "gains privileges when it starts (set-user-ID or set-group-ID), and the loader preloads nothing into \
                 such programs: start quicket run as the user and group that the file belongs to, or a copy of the \
                 program, which gains nothing"
            }
            Self::Capabilities => {
                "gains privileges when it starts (capabilities of its file, see getcap), and the loader preloads \
                 nothing into such programs: start a copy of the program, which gains nothing; setpriv \
                 --inh-caps and --ambient-caps, or AmbientCapabilities of systemd, give it what it needs"
            }
        }
    }
}

/// Whether a file of this mode changes the user or group, if it is of other ones.
fn is_changed(mode: u32, other_user: bool, other_group: bool) -> bool {
    let group = SETGID | GROUP_MAY_EXECUTE;
    (mode & SETUID != 0 && other_user) || (mode & group == group && other_group)
}

/// Whether the attribute (`struct vfs_cap_data`, little-endian) gives capabilities. Those that are only inheritable are none
/// that the process has not.
fn are_given(attribute: &[u8]) -> bool {
    let word = |index: usize| {
        let word = attribute.get(4 * index..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u32::from_le_bytes(*word))
    };
    // The flags, and the two halves of what is permitted.
    word(0) & EFFECTIVE != 0 || word(1) != 0 || word(3) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_changes_the_group_only_if_the_group_may_execute_it() {
        assert!(is_changed(0o4755, true, false));
        assert!(!is_changed(0o4755, false, true));
        assert!(is_changed(0o2755, false, true));
        assert!(!is_changed(0o2745, false, true));
        assert!(!is_changed(0o755, true, true));
    }

    #[test]
    fn an_attribute_gives_what_is_effective_or_permitted() {
        let attribute = |words: [u32; 5]| words.map(u32::to_le_bytes).concat();
        assert!(are_given(&attribute([0x0200_0001, 0x400, 0, 0, 0])));
        assert!(are_given(&attribute([0x0200_0000, 0, 0, 1, 0])));
        assert!(!are_given(&attribute([0x0200_0000, 0, 0x400, 0, 1])));
        assert!(!are_given(&[]));
        assert!(!are_given(&[1, 0]));
    }
}
