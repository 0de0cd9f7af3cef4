//! Variables of the environment that name files to write secrets to, where whoever started the process may choose what
//! it uses.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::sync::OnceLock;

/// AT_SECURE (getauxval(3)): the process has more rights than who started it (set-user-ID, file capabilities).
const AT_SECURE: usize = 23;

/// A variable; `None`, too, if this process has more rights than who started it: it would write where that one
/// says. The crate of the switch has the same for its variables, by getauxval(3), which is no safe function.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    static PRIVILEGED: OnceLock<bool> = OnceLock::new();
    let privileged = *PRIVILEGED.get_or_init(|| {
        // The system keeps from a process with foreign rights what it says of itself here.
        cfg!(target_os = "linux") && fs::read("/proc/self/auxv").map_or(true, |all| is_secure(&all))
    });
    if privileged { None } else { env::var_os(name) }
}

/// What an auxiliary vector says: pairs of words, the first of which names the second.
fn is_secure(vector: &[u8]) -> bool {
    const WORD: usize = size_of::<usize>();
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, usize::from_ne_bytes);
    let mut pairs = vector.chunks_exact(2 * WORD).map(|pair| pair.split_at(WORD));
    let found = pairs.find(|(name, _)| word(name) == AT_SECURE);
    found.is_none_or(|(_, value)| word(value) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_more_rights_than_its_caller_reads_nothing() {
        let vector = |pairs: &[(usize, usize)]| -> Vec<u8> {
            let words = pairs.iter().flat_map(|(name, value)| [*name, *value]);
            words.flat_map(usize::to_ne_bytes).collect()
        };
        assert!(!is_secure(&vector(&[(6, 4096), (AT_SECURE, 0), (0, 0)])));
        assert!(is_secure(&vector(&[(6, 4096), (AT_SECURE, 1), (0, 0)])));
        assert!(is_secure(&vector(&[(6, AT_SECURE), (0, 0)])), "it does not say");
        assert!(is_secure(&[]));
        // This one has none.
        assert_eq!(variable("PATH"), env::var_os("PATH"));
    }
}
