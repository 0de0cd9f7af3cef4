//! Programs in C and Python that know nothing of Quicket but its preloaded library.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use quicket::Identity;

/// What programs need beside the library.
struct Prepared {
    library: PathBuf,
    calls: PathBuf,
    features: PathBuf,
    gnutls: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    pin: String,
}

fn prepared() -> &'static Prepared {
    static PREPARED: OnceLock<Prepared> = OnceLock::new();
    PREPARED.get_or_init(|| {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let file = |name: &str| dir.join(format!("{name}-{}", std::process::id()));
        let identity = Identity::self_signed(["localhost"]).unwrap();
        let (certificate, key) = (file("certificate"), file("key"));
        let (calls, features, gnutls) = (file("calls"), file("features"), file("gnutls"));
        std::fs::write(&certificate, identity.chain_pem()).unwrap();
        std::fs::write(&key, identity.key_pem()).unwrap();
        compile("calls.c", &calls, &[]);
        compile("features.c", &features, &[]);
        compile("gnutls.c", &gnutls, &["-lgnutls"]);
        // Cargo puts it beside the tests that it is built for.
        let this = std::env::current_exe().unwrap();
        let library = this.with_file_name("libquicket_preload.so");
        assert!(library.exists(), "{} is not built", library.display());
        Prepared {
            library,
            calls,
            features,
            gnutls,
            certificate,
            key,
            pin: identity.fingerprint().to_string(),
        }
    })
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

fn compile(name: &str, program: &Path, libraries: &[&str]) {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../c/include");
    let compiled = Command::new("cc")
        .args([
            "-std=gnu11",
            "-O2",
            "-D_FORTIFY_SOURCE=2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pthread",
        ])
        .args(["-Wno-unused-result", "-Wno-stringop-overflow", "-Wno-nonnull", "-I"])
        .arg(include)
        .arg("-o")
        .args([program, &source(name)])
        .arg("-ldl")
        .args(libraries)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

fn passes(command: &mut Command) {
    let prepared = prepared();
    let ran = command
        .env("LD_PRELOAD", &prepared.library)
        .env("CERTIFICATE", &prepared.certificate)
        .env("KEY", &prepared.key)
        .env("PIN", &prepared.pin)
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{}: {out}{err}", ran.status);
    assert_eq!(out, "passed\n", "{err}");
}

fn c_program(test: &str) {
    passes(Command::new(&prepared().calls).arg(test));
}

fn feature(test: &str) {
    passes(Command::new(&prepared().features).arg(test));
}

#[test]
fn all_ciphers_both_versions_and_no_encryption_protect_packets() {
    feature("protection");
}

#[test]
fn keys_are_updated() {
    feature("keys");
}

#[test]
fn a_client_moves_to_another_address() {
    feature("migration");
}

#[test]
fn datagrams_have_limits_and_ends() {
    feature("datagrams");
}

#[test]
fn thousands_of_streams_come_and_go() {
    feature("streams");
}

#[test]
fn listeners_are_told_apart_by_protocol() {
    feature("protocols");
}

#[test]
fn epoll_hears_of_everything_under_load() {
    feature("load");
}

#[test]
fn data_crosses_in_every_way_over_both_families() {
    c_program("transfer");
}

#[test]
fn poll_select_and_epoll_say_what_is_the_case() {
    c_program("polling");
}

#[test]
fn misuse_gets_the_errors_of_the_kernel() {
    c_program("errors");
}

#[test]
fn descriptors_are_duplicated_replaced_and_closed() {
    c_program("descriptors");
}

#[test]
fn signals_end_calls_that_wait() {
    c_program("signals");
}

#[test]
fn two_processes_talk_and_the_end_of_one_closes_its_connections() {
    c_program("exits");
}

#[test]
fn sockets_stay_with_the_parent() {
    c_program("forks");
}

#[test]
fn programs_perform_the_handshake_with_a_certificate() {
    passes(Command::new(&prepared().gnutls).arg("certificate"));
}

#[test]
fn programs_perform_the_handshake_with_a_pre_shared_key() {
    passes(Command::new(&prepared().gnutls).arg("psk"));
}

#[test]
fn python_uses_its_socket_module() {
    passes(Command::new("python3").arg(source("sockets.py")));
}

#[test]
fn a_program_without_quic_notices_nothing() {
    let script =
        "exec 2>&1; for i in 1 2 3; do echo $i; done | cat; read x </dev/null; echo passed";
    let ran = Command::new("bash")
        .args(["-c", script])
        .env("LD_PRELOAD", &prepared().library)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "1\n2\n3\npassed\n");
}
