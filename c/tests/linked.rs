//! A program in C that is linked to the library.

use std::path::Path;
use std::process::Command;

use quicket::Identity;

#[test]
fn a_linked_program_mixes_quic_sockets_with_others() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = |name: &str| dir.join(format!("linked-{name}-{}", std::process::id()));
    let (program, certificate, key) = (file("program"), file("certificate"), file("key"));
    let identity = Identity::self_signed(["localhost"]).unwrap();
    std::fs::write(&certificate, identity.chain_pem()).unwrap();
    std::fs::write(&key, identity.key_pem()).unwrap();
    // Cargo puts the library beside the tests that it is built for.
    let this = std::env::current_exe().unwrap();
    let libraries = this.parent().unwrap();
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(here.join("include"))
        .arg("-o")
        .args([&program, &here.join("tests/programs/linked.c")])
        .arg("-L")
        .arg(libraries)
        .args(["-lquicket_c", "-ldl"])
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = Command::new(&program)
        .env("LD_LIBRARY_PATH", libraries)
        .env("CERTIFICATE", &certificate)
        .env("KEY", &key)
        .env("PIN", identity.fingerprint().to_string())
        .env("QUICKET_SWITCH", format!("quicket-linked-{}", std::process::id()))
        .env("QUICKET_SWITCH_PROGRAM", "/nonexistent/quicket")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{}: {out}{err}", ran.status);
    assert_eq!(out, "passed\n", "{err}");
}
