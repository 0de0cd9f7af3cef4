//! Programs in C and Python that know nothing of Quicket but its preloaded library; those in C also
//! with its C library in place of the system's calls.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use quicket::Identity;

/// Programs, and the libraries that they need.
const SOURCES: [(&str, &[&str]); 6] = [
    ("calls", &[]),
    ("events", &[]),
    ("faults", &[]),
    ("features", &[]),
    ("gnutls", &["-lgnutls"]),
    ("options", &[]),
];

/// What programs need beside the libraries.
struct Prepared {
    /// Where both libraries are.
    libraries: PathBuf,
    /// By name, with the system's calls and with the library's.
    programs: HashMap<&'static str, [PathBuf; 2]>,
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
        std::fs::write(&certificate, identity.chain_pem()).unwrap();
        std::fs::write(&key, identity.key_pem()).unwrap();
        // Cargo puts them beside the tests that they are built for.
        let this = std::env::current_exe().unwrap();
        let libraries = this.parent().unwrap().to_owned();
        let library = preloaded(&libraries);
        assert!(library.exists(), "{} is not built", library.display());
        let compiled = SOURCES.map(|(name, needs)| {
            let programs = [file(name), file(&format!("linked-{name}"))];
            compile(name, &programs[0], needs);
            let linked = ["-include", &source("system.h"), "-L"].map(str::to_owned);
            let path = libraries.to_str().unwrap().to_owned();
            let linked = [&linked[..], &[path, "-lquicket_c".into()]].concat();
            let linked = linked.iter().map(String::as_str).chain(needs.iter().copied());
            compile(name, &programs[1], &linked.collect::<Vec<_>>());
            (name, programs)
        });
        let pin = identity.fingerprint().to_string();
        Prepared { libraries, programs: compiled.into(), certificate, key, pin }
    })
}

fn preloaded(libraries: &Path) -> PathBuf {
    libraries.join("libquicket_preload.so")
}

/// The path of a source.
fn source(name: &str) -> String {
    format!("{}/tests/programs/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn compile(name: &str, program: &Path, more: &[&str]) {
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
        .args([program, Path::new(&source(&format!("{name}.c")))])
        .args(more)
        .arg("-ldl")
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
}

fn passes(command: &mut Command) {
    let prepared = prepared();
    let ran = command
        .env("CERTIFICATE", &prepared.certificate)
        .env("KEY", &prepared.key)
        .env("PIN", &prepared.pin)
        // A program that is installed is none of a test's.
        .env("QUICKET_SWITCH_PROGRAM", "/there/is/none")
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{command:?}: {}: {out}{err}", ran.status);
    assert_eq!(out, "passed\n", "{command:?}: {err}");
}

fn interposed(command: &mut Command) {
    passes(command.env("LD_PRELOAD", preloaded(&prepared().libraries)));
}

/// A test of a program in C, interposed and linked.
fn both_ways(program: &str, test: &str) {
    let [with_system, with_library] = &prepared().programs[program];
    interposed(Command::new(with_system).arg(test));
    let libraries = &prepared().libraries;
    passes(Command::new(with_library).arg(test).env("LD_LIBRARY_PATH", libraries));
}

#[test]
fn all_ciphers_both_versions_and_no_encryption_protect_packets() {
    both_ways("features", "protection");
}

#[test]
fn keys_are_updated() {
    both_ways("features", "keys");
}

#[test]
fn a_client_moves_to_another_address() {
    both_ways("features", "migration");
}

#[test]
fn a_client_moves_to_the_preferred_address_of_its_server() {
    both_ways("features", "preferred");
}

#[test]
fn datagrams_have_limits_and_ends() {
    both_ways("features", "datagrams");
}

#[test]
fn thousands_of_streams_come_and_go() {
    both_ways("features", "streams");
}

#[test]
fn options_of_udp_and_ip_reach_the_packets() {
    both_ways("features", "udp_options");
}

#[test]
fn listeners_are_told_apart_by_protocol() {
    both_ways("features", "protocols");
}

#[test]
fn epoll_hears_of_everything_under_load() {
    both_ways("features", "load");
}

#[test]
fn data_crosses_in_every_way_over_both_families() {
    both_ways("calls", "transfer");
}

#[test]
fn a_socket_for_ipv6_keeps_from_ipv4_if_it_shall() {
    both_ways("calls", "families");
}

#[test]
fn poll_select_and_epoll_say_what_is_the_case() {
    both_ways("calls", "polling");
}

#[test]
fn flags_do_what_they_say() {
    both_ways("calls", "flags");
}

#[test]
fn misuse_gets_the_errors_of_the_kernel() {
    both_ways("calls", "errors");
}

#[test]
fn descriptors_are_duplicated_replaced_and_closed() {
    // Linked, a program could close what the library has for itself.
    interposed(Command::new(&prepared().programs["calls"][0]).arg("descriptors"));
}

#[test]
fn streams_of_the_c_library_and_other_detours_lose_nothing() {
    interposed(Command::new(&prepared().programs["calls"][0]).arg("detours"));
}

#[test]
fn signals_end_calls_that_wait() {
    both_ways("calls", "signals");
}

#[test]
fn two_processes_talk_and_the_end_of_one_closes_its_connections() {
    both_ways("calls", "exits");
}

#[test]
fn a_process_may_end_while_its_sockets_begin() {
    for _ in 0..10 {
        both_ways("calls", "sudden");
    }
}

#[test]
fn sockets_stay_with_the_parent() {
    both_ways("calls", "forks");
}

#[test]
fn a_thread_that_is_cancelled_finishes_its_call_first() {
    both_ways("faults", "cancelled_calls");
}

#[test]
fn a_thread_that_is_cancelled_in_poll_keeps_no_socket() {
    both_ways("faults", "cancelled_polls");
}

#[test]
fn what_a_program_calls_when_it_ends_may_send() {
    both_ways("faults", "last_handler");
}

#[test]
fn streams_of_the_c_library_are_written_out_when_a_program_ends() {
    interposed(Command::new(&prepared().programs["faults"][0]).arg("last_stream"));
}

#[test]
fn what_handlers_of_signals_open_is_the_programs() {
    both_ways("faults", "handlers");
}

#[test]
fn a_connection_waits_until_there_are_descriptors_for_it() {
    both_ways("faults", "exhaustion");
}

#[test]
fn a_connection_for_which_there_were_no_descriptors_is_closed_at_the_end_of_the_process() {
    both_ways("faults", "unopened");
}

#[test]
fn polling_goes_on_once_there_can_be_threads() {
    both_ways("faults", "no_thread");
}

#[test]
fn all_is_closed_where_a_range_cannot_be() {
    interposed(Command::new(&prepared().programs["faults"][0]).arg("filtered"));
}

#[test]
fn data_is_sent_as_far_as_it_can_be_read() {
    both_ways("faults", "memory");
}

#[test]
fn arguments_are_taken_as_the_kernel_takes_them() {
    both_ways("faults", "arguments");
}

#[test]
fn programs_perform_the_handshake_with_a_certificate() {
    both_ways("gnutls", "certificate");
}

#[test]
fn programs_perform_the_handshake_with_a_pre_shared_key() {
    both_ways("gnutls", "psk");
}

#[test]
fn programs_perform_the_handshake_with_a_cipher_that_quickets_tls_does_not_have() {
    both_ways("gnutls", "ccm");
}

#[test]
fn programs_send_early_data_with_a_ticket_that_they_kept() {
    both_ways("gnutls", "early");
}

#[test]
fn options_are_got_and_set_where_they_may_be() {
    for test in ["directions", "events", "streams", "connection_ids", "ends_and_keys"] {
        both_ways("options", test);
    }
}

#[test]
fn parameters_and_behaviour_have_their_ranges_and_times() {
    for test in ["transport_param", "config"] {
        both_ways("options", test);
    }
}

#[test]
fn options_for_tls_tokens_protocols_and_moves_are_got_and_set_where_they_may_be() {
    for test in ["for_tls", "token", "alpn", "session_ticket", "migration"] {
        both_ways("options", test);
    }
}

#[test]
fn every_step_of_a_stream_is_told() {
    for test in ["stream_updates", "missing_pieces", "limits"] {
        both_ways("events", test);
    }
}

#[test]
fn what_becomes_of_a_connection_is_told() {
    for test in ["connection_ids", "ends", "key_updates", "tokens"] {
        both_ways("events", test);
    }
}

#[test]
fn python_uses_its_socket_module() {
    interposed(Command::new("python3").arg(source("sockets.py")));
}

#[test]
fn a_program_without_quic_notices_nothing() {
    let script =
        "exec 2>&1; for i in 1 2 3; do echo $i; done | cat; read x </dev/null; echo passed";
    let ran = Command::new("bash")
        .args(["-c", script])
        .env("LD_PRELOAD", preloaded(&prepared().libraries))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "1\n2\n3\npassed\n");
}
