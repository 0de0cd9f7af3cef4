//! The client's end.

use std::path::Path;

use quicket::{ClientConfig, ClientTls, Fingerprint, Version};
use quicket_workload::bench::Failure;
use quicket_workload::peer::ClientArguments;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::EndpointArguments;
use super::case::{Case, Second, Versions};
use super::negotiation;
use super::url::Requests;
use crate::client::Client;

pub(super) async fn run(arguments: &EndpointArguments, case: Case) -> Result<(), Failure> {
    let requests = Requests::parse(&arguments.requests)?;
    let connect = requests.resolve().await?;
    if case.versions == Versions::Unknown {
        return negotiation::provoke(connect).await;
    }
    let told = ClientArguments {
        connect,
        ca: arguments.certificate(),
        server_name: requests.host,
        alpn: case.alpn.to_owned(),
        resume: case.second == Second::Resumed,
        early_data: case.second == Second::Early,
        key_update: case.key_update,
        migrate: None,
        one_by_one: case.one_by_one,
        parallel: false,
        cert: None,
        key: None,
        chacha20: case.chacha20,
        v2: case.versions == Versions::Upgrade,
        unknown_version: false,
        streams: 0,
        resets: 0,
        datagrams: 0,
        download: requests.paths,
        out: Some(arguments.downloads.clone()),
    };
    let client = Client::new(config(arguments, case)?, told).await?;
    client.work().await?;
    client.finish().await;
    Ok(())
}

fn config(arguments: &EndpointArguments, case: Case) -> Result<ClientConfig, Failure> {
    // The chains of some cases are longer than a verifier permits, to fill packets. Who has the
    // certificate need not ask who issued it.
    let mut tls = ClientTls::builder()
        .pinned([fingerprint(&arguments.certificate())?])
        .alpn([case.alpn])
        .early_data(case.second == Second::Early);
    if let Some(suites) = case.cipher_suites() {
        tls = tls.cipher_suites(suites);
    }
    if let Some(log) = arguments.key_log()? {
        tls = tls.key_log(log);
    }
    let acceptable: &[Version] = match case.versions {
        Versions::Upgrade => &[Version::V2, Version::V1],
        Versions::One | Versions::Unknown => &[Version::V1],
    };
    let mut config = ClientConfig::new(tls.build()?)
        .transport(case.transport())
        .versions(Version::V1, acceptable.iter().copied());
    if let Some(log) = arguments.qlog()? {
        config = config.qlog(log);
    }
    Ok(config)
}

/// Of the first certificate of a chain.
fn fingerprint(chain: &Path) -> Result<Fingerprint, Failure> {
    let certificate = CertificateDer::from_pem_file(chain).map_err(|error| {
        format!(
            "cannot read the server's certificate from {}: {error}; `--certs` or CERTS names its \
             folder",
            chain.display()
        )
    })?;
    Ok(Fingerprint::of(&certificate))
}
