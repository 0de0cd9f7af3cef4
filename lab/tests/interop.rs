//! Cases between Quicket and each other implementation, in both roles.

use quicket_lab::interop::{self, CASES, Options};
use quicket_lab::peers::{Implementation, Workshop};

/// Where 30 % of the packets are lost, chance can be such that an end hears nothing for its idle
/// timeout. A test may not depend on that; `lab interop` has these cases.
const LEFT_TO_CHANCE: &[&str] = &["handshakeloss", "handshakecorruption"];

#[test]
fn quicket_does_the_cases_with_everybody_in_both_roles() {
    let out = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("interop");
    let options = Options {
        cases: CASES.iter().filter(|case| !LEFT_TO_CHANCE.contains(&case.name)).collect(),
        pairs: interop::pairs_with(Implementation::Quicket, &Implementation::ALL),
        jobs: 6,
        out: out.clone(),
        keep: false,
    };
    let report = interop::run(&options, &Workshop::new().unwrap()).unwrap();
    std::fs::write(out.join("index.html"), report.to_html()).unwrap();
    assert!(report.passed(), "see {}\n{}", out.display(), report.table());
}
