//! Keys of a token, by SoftHSM: made there by another program, and never seen outside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cryptoki::context::{CInitializeArgs, CInitializeFlags, Pkcs11};
use cryptoki::session::SessionState;
use quicket_keyd::protocol::TranscriptHash;
use quicket_keyd::{Key, KeyError, Keys, Token};

const LIBRARIES: [&str; 3] = [
    "/usr/lib/softhsm/libsofthsm2.so",
    "/usr/lib/x86_64-linux-gnu/softhsm/libsofthsm2.so",
    "/usr/lib64/pkcs11/libsofthsm2.so",
];

fn library() -> &'static Path {
    let found = LIBRARIES.iter().map(Path::new).find(|path| path.exists());
    found.expect("apt-get install softhsm2 opensc")
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}

fn tool(dir: &Path, arguments: &[&str]) {
    let mut command = Command::new("pkcs11-tool");
    command.arg("--module").arg(library()).args([
        "--token-label",
        "site",
        "--login",
        "--pin",
        "1234",
    ]);
    run(command.args(arguments).env("SOFTHSM2_CONF", dir.join("conf")));
}

fn write(path: PathBuf, text: &str, mode: u32) -> PathBuf {
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// Whether openssl takes a signature for one by this public key.
fn verifies(dir: &Path, spki: &[u8], content: &[u8], signature: &[u8], options: &[&str]) -> bool {
    for (name, bytes) in [("spki", spki), ("content", content), ("signature", signature)] {
        fs::write(dir.join(name), bytes).unwrap();
    }
    let mut command = Command::new("openssl");
    command.args(["dgst", "-verify", "spki", "-keyform", "DER", "-signature", "signature"]);
    command.args(options).arg("content").current_dir(dir);
    command.output().unwrap().status.success()
}

/// Another program's hand in the same library: what it does concerns all sessions of the token.
fn log_out(conf: Option<CInitializeArgs>) {
    let library = Pkcs11::new(library()).unwrap();
    if let Some(arguments) = conf {
        // It ends, and begins anew with nothing of before.
        library.clone().finalize().unwrap();
        library.initialize(arguments).unwrap();
        return;
    }
    let site =
        |slot: &cryptoki::slot::Slot| library.get_token_info(*slot).unwrap().label() == "site";
    let slots = library.get_slots_with_initialized_token().unwrap();
    let session = library.open_ro_session(slots.into_iter().find(site).unwrap()).unwrap();
    assert_eq!(session.get_session_info().unwrap().session_state(), SessionState::RoUser);
    session.logout().unwrap();
}

fn signs(key: &Key) -> bool {
    let hash = TranscriptHash::new(&[9; 48]).unwrap();
    key.sign(key.kind().schemes()[0].into(), &hash).is_ok()
}

#[test]
fn a_token_signs_handshakes_with_its_keys() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("tokens")).unwrap();
    let tokens = dir.join("tokens");
    let conf = format!("directories.tokendir = {}\nlog.level = ERROR\n", tokens.display());
    let conf = write(dir.join("conf"), &conf, 0o600);
    let mut init = Command::new("softhsm2-util");
    init.args(["--init-token", "--free", "--label", "site", "--so-pin", "5678", "--pin", "1234"]);
    run(init.env("SOFTHSM2_CONF", &conf));
    for (kind, label, id) in
        [("rsa:2048", "rsa", "01"), ("EC:prime256v1", "p256", "02"), ("EC:secp384r1", "p384", "03")]
    {
        tool(
            dir,
            &["--keypairgen", "--key-type", kind, "--label", label, "--id", id, "--usage-sign"],
        );
    }
    // SAFETY: no other thread of this test binary, which has one test, reads the environment now.
    #[allow(unsafe_code, reason = "the library reads its configuration from the environment")]
    unsafe {
        std::env::set_var("SOFTHSM2_CONF", &conf);
    }
    let token = Token::open(library(), "site").unwrap();
    let pin = write(dir.join("wrong"), "4321\n", 0o600);
    for told in ["is not tried again", "the token has refused this PIN"] {
        let error = token.keys(&pin, &[]).unwrap_err();
        assert!(matches!(error, KeyError::Pin(_)) && error.to_string().contains(told), "{error}");
    }
    let pin = write(dir.join("pin"), "1234\n", 0o600);
    let keys = Keys::new(token.keys(&pin, &[]).unwrap()).unwrap();
    assert_eq!(keys.iter().len(), 3);
    let pss = ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:digest"];
    let hash = TranscriptHash::new(&[9; 48]).unwrap();
    for (label, scheme, options) in [
        ("rsa", 0x0804, [&["-sha256"][..], &pss].concat()),
        ("rsa", 0x0805, [&["-sha384"][..], &pss].concat()),
        ("rsa", 0x0806, [&["-sha512"][..], &pss].concat()),
        ("p256", 0x0403, vec!["-sha256"]),
        ("p384", 0x0503, vec!["-sha384"]),
    ] {
        let named = |key: &&quicket_keyd::Key| key.name() == format!("site/{label}");
        let key = keys.iter().find(named).unwrap();
        // Many, as numbers of ECDSA begin with zeros now and then.
        for _ in 0..20 {
            let signature = key.sign(scheme, &hash).unwrap();
            assert!(verifies(dir, key.spki(), &hash.content(), &signature, &options), "{label}");
        }
    }
    // Several at once, and read again meanwhile.
    std::thread::scope(|scope| {
        let sign = || {
            for key in keys.iter() {
                let scheme = key.kind().schemes()[0].into();
                (0..20).for_each(|_| assert!(key.sign(scheme, &hash).is_ok()));
            }
        };
        (0..4).for_each(|_| drop(scope.spawn(sign)));
        assert_eq!(token.keys(&pin, &["rsa".to_owned()]).unwrap().len(), 1);
    });
    let told = token.keys(&pin, &["nothing".to_owned()]).unwrap_err().to_string();
    assert!(told.contains("site/nothing"), "{told}");
    for mode in [0o644, 0o660] {
        let open = write(dir.join("open"), "1234\n", mode);
        assert!(token.keys(&open, &[]).unwrap_err().to_string().contains("chmod 640"));
    }
    // A public half that could be anybody's: of none with an ID, and of two with the same.
    let pair = ["--keypairgen", "--key-type", "EC:prime256v1", "--usage-sign", "--label"];
    tool(dir, &[&pair[..], &["twin", "--id", "04"]].concat());
    tool(dir, &[&pair[..], &["twin", "--id", "04"]].concat());
    log_out(Some(CInitializeArgs::new(CInitializeFlags::OS_LOCKING_OK)));
    assert!(keys.iter().all(signs), "after another beginning of the library");
    let told = token.keys(&pin, &["twin".to_owned()]).unwrap_err().to_string();
    assert!(told.contains("more than one public key"), "{told}");
    assert_eq!(token.keys(&pin, &[]).unwrap().len(), 3, "the others are as they were");
    for _ in 0..2 {
        log_out(None);
        assert!(keys.iter().all(signs), "after a logout behind its back");
    }
    let other = Token::open(library(), "other").unwrap();
    let told = other.keys(&pin, &[]).unwrap_err().to_string();
    assert!(told.contains("\"other\""), "{told}");
}
