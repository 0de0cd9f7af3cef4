//! Authorities, and certificates of clients, by openssl.
#![allow(dead_code, reason = "each test uses some of it")]

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) fn openssl(dir: &Path, arguments: &str) -> String {
    let mut command = Command::new("openssl");
    let command = command.args(arguments.split(' ')).current_dir(dir).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{arguments}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes the authority NAME.pem, with its key and what it has revoked.
pub(crate) fn authority(dir: &Path, name: &str) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(
        dir,
        &format!("req -x509 {key} -subj /CN={name} -days 2 -keyout {name}.key -out {name}.pem"),
    );
    fs::write(dir.join(format!("{name}.index")), "").unwrap();
    fs::write(dir.join(format!("{name}.number")), "01\n").unwrap();
    let config = format!(
        "[ca]\ndefault_ca = this\n[this]\ndatabase = {name}.index\ncrlnumber = {name}.number\n\
         default_md = sha256\ndefault_crl_days = 2\ncertificate = {name}.pem\nprivate_key = {name}.key\n\
         crl_extensions = crl\n[crl]\nauthorityKeyIdentifier = keyid:always\n"
    );
    fs::write(dir.join(format!("{name}.cnf")), config).unwrap();
}

/// Makes CLIENT.pem, with its key, by an authority.
pub(crate) fn client(dir: &Path, authority: &str, client: &str) {
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(
        dir,
        &format!("req -new {key} -subj /CN={client} -keyout {client}.key -out {client}.csr"),
    );
    fs::write(dir.join("client.ext"), "extendedKeyUsage = clientAuth\n").unwrap();
    openssl(
        dir,
        &format!(
            "x509 -req -in {client}.csr -CA {authority}.pem -CAkey {authority}.key -days 2 -out {client}.pem \
             -CAcreateserial -extfile client.ext"
        )
        .replace("  ", " "),
    );
}

/// Writes AUTHORITY.crl, with `revoked` in it.
pub(crate) fn revoke(dir: &Path, authority: &str, revoked: Option<&str>) {
    if let Some(client) = revoked {
        openssl(dir, &format!("ca -config {authority}.cnf -revoke {client}.pem"));
    }
    openssl(dir, &format!("ca -config {authority}.cnf -gencrl -out {authority}.crl"));
}
