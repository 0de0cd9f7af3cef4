//! What a test says when the machine does not permit all of it.

use std::fmt::Display;
use std::io::Write;

/// Where one of these variables says yes, a test fails that is not permitted what it needs:
/// continuous integration sets the first, `./test` as root the second.
const REQUIRED: [&str; 2] = ["CI", "QUICKET_TEST_NAMESPACES"];

/// Says that the test that runs leaves something out for want of root, of a capability, or of a
/// program that `./test` installs. Whoever runs it sees that although the test passes.
///
/// # Panics
///
/// In continuous integration, and under `./test` as root.
pub fn leave_out(reason: impl Display) {
    let required = are_required(|name| std::env::var(name).ok());
    assert!(!required, "{} must not be left out: {reason}", test());
    tell_left_out(reason);
}

/// Says the same of what a machine may lack anywhere: a feature of its kernel, or a program that
/// `./test` does not install.
pub fn tell_left_out(reason: impl Display) {
    // Not by `eprintln!`, which the test harness keeps to itself; in one piece, as others write too.
    let line = format!("LEFT OUT, in whole or in part: {}: {reason}\n", test());
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The harness names the thread of a test after it.
fn test() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}

fn are_required(variable: impl Fn(&str) -> Option<String>) -> bool {
    let no = ["", "0", "false"];
    REQUIRED.iter().filter_map(|name| variable(name)).any(|value| !no.contains(&value.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_may_be_left_out_where_a_variable_says_so() {
        let with = |name: &'static str, value: &'static str| {
            are_required(move |asked| (asked == name).then(|| value.to_owned()))
        };
        assert!(with("CI", "true") && with("CI", "1") && with("QUICKET_TEST_NAMESPACES", "1"));
        assert!(!with("CI", "false") && !with("CI", "") && !with("HOME", "true"));
    }
}
