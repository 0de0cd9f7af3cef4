//! A site: gateways with common secrets behind a spreader, and clients that come back to them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quicket::tokio::Connection;
use quicket::{ClientConfig, ClientTls, EarlyData, MemorySessionStore, SessionStore, SiteSecrets};
use quicket_testing::until;
use serde_json::Value;
use tempfile::TempDir;

use super::behind::{Site, folder};
use super::client::{CONTROL, ask, request, run, unidirectional};
use super::spreader::Spreader;

/// Gateways of one site.
pub(crate) struct Cluster {
    pub(crate) gateways: Vec<Site>,
    pub(crate) spreader: Spreader,
    secrets: SiteSecrets,
    table: Vec<String>,
}

/// What became of a client that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visit {
    pub(crate) early: bool,
    pub(crate) resumed: bool,
}

/// Early data was taken.
pub(crate) const TAKEN: Visit = Visit { early: true, resumed: true };
/// It was not, and the session was resumed.
pub(crate) const REFUSED: Visit = Visit { early: false, resumed: true };

/// Secrets that are drawn by counting.
pub(crate) fn drawn() -> SiteSecrets {
    let mut octet = 0;
    SiteSecrets::draw(0, &mut |out| {
        octet += 1;
        out.fill(octet);
    })
}

impl Cluster {
    /// One gateway for each store's socket, with these lines more in the table.
    pub(crate) fn start(stores: &[&Path], lines: &str) -> Self {
        let tables = stores.iter().map(|store| {
            // They reach the store by different ways, and it is the same one.
            format!(
                "[early_data]\nregister = \"unix:{}\"\nname = \"test\"\n{lines}\n",
                store.display()
            )
        });
        Self::start_tables(tables.collect())
    }

    pub(crate) fn start_tables(table: Vec<String>) -> Self {
        let secrets = drawn();
        let shared = folder();
        let gateways: Vec<Site> = table
            .iter()
            .map(|table| {
                let dir = folder();
                for name in ["cert.pem", "cert.key"] {
                    fs::copy(shared.path().join(name), dir.path().join(name)).unwrap();
                }
                write_secrets(&dir, &secrets);
                let text = text(dir.path(), table);
                Site::start_top(dir, &text)
            })
            .collect();
        let spreader = Spreader::start(gateways[0].address);
        Self { gateways, spreader, secrets, table }
    }

    /// Rotates the secrets, and has all gateways read them again.
    pub(crate) fn rotate(&mut self) {
        self.secrets = self.secrets.rotate(0, &mut |out| out.fill(fresh())).unwrap();
        for (gateway, table) in self.gateways.iter().zip(&self.table) {
            write_secrets(&gateway.dir, &self.secrets);
            gateway.reload_top(&text(gateway.dir.path(), table));
        }
    }

    /// Has a gateway read its file again, with these lines more.
    pub(crate) fn reload(&self, gateway: usize, lines: &str) {
        let site = &self.gateways[gateway];
        site.reload_top(&(text(site.dir.path(), &self.table[gateway]) + lines));
    }

    /// Has another gateway take the place of one that was stopped, with the same files.
    pub(crate) fn start_again(&mut self, gateway: usize, lines: &str) {
        let dir = folder();
        let before = &mut self.gateways[gateway];
        before.stop();
        for name in ["cert.pem", "cert.key", "secrets"] {
            fs::copy(before.path(name), dir.path().join(name)).unwrap();
        }
        let text = text(dir.path(), &self.table[gateway]) + lines;
        *before = Site::start_top(dir, &text);
    }

    /// A client with these sessions, the last of which it uses.
    pub(crate) fn client(&self, sessions: &[Vec<u8>]) -> (ClientConfig, Arc<MemorySessionStore>) {
        let tls = ClientTls::builder().ca_file(self.gateways[0].path("cert.pem")).alpn(["h3"]);
        let store = Arc::new(MemorySessionStore::new());
        sessions.iter().for_each(|session| store.save_session(&self.spreader.name(), session));
        let config = ClientConfig::new(tls.early_data(true).build().unwrap());
        (config.sessions(store.clone()), store)
    }

    /// Tickets of a gateway.
    pub(crate) fn tickets(&self, gateway: usize) -> Vec<Vec<u8>> {
        self.spreader.lead_to(self.gateways[gateway].address);
        let (config, store) = self.client(&[]);
        let mut tickets = Vec::new();
        run(async {
            let connection = self.connect(&config, false).await;
            let _control = unidirectional(&connection, CONTROL).await;
            assert_eq!(ask(&connection, &request("GET", "/", &[])).await.statuses(), [200]);
            for _ in 0..200 {
                tickets.extend(store.take_session(&self.spreader.name()));
                if tickets.len() == 2 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            panic!("two tickets are missing: {}", tickets.len());
        });
        tickets
    }

    pub(crate) async fn connect(&self, config: &ClientConfig, early: bool) -> Connection {
        let address = self.spreader.address();
        match early {
            true => Connection::connect_early(address, "localhost", config).await.unwrap(),
            false => Connection::connect(address, "localhost", config).await.unwrap(),
        }
    }

    /// Comes to a gateway with a ticket and a request as early data, and is answered in any case.
    pub(crate) fn visit(&self, gateway: usize, ticket: &[u8]) -> Visit {
        self.spreader.lead_to(self.gateways[gateway].address);
        run(self.visit_with(ticket))
    }

    pub(crate) async fn visit_with(&self, ticket: &[u8]) -> Visit {
        let (config, _store) = self.client(&[ticket.to_vec()]);
        let connection = self.connect(&config, true).await;
        assert_eq!(connection.early_data(), EarlyData::Offered);
        let (mut send, mut recv) = connection.open_bi().await.unwrap().split();
        send.write_all(&request("GET", "/", &[])).await.unwrap();
        let _ = send.finish();
        connection.wait_established().await.unwrap();
        let early = connection.early_data() == EarlyData::Accepted;
        let _control = unidirectional(&connection, CONTROL).await;
        let answer = match early {
            true => super::client::outcome(&mut recv).await,
            false => ask(&connection, &request("GET", "/", &[])).await,
        };
        assert_eq!(answer.statuses(), [200]);
        let resumed = connection.handshake().unwrap().resumed;
        connection.close(0x100, b"");
        Visit { early, resumed }
    }

    /// A counter of a gateway, of this outcome if it has any.
    pub(crate) fn counter(&self, gateway: usize, name: &str, outcome: &str) -> u64 {
        counter(&self.gateways[gateway], name, outcome)
    }

    /// All gateways together.
    pub(crate) fn all(&self, name: &str, outcome: &str) -> u64 {
        (0..self.gateways.len()).map(|gateway| self.counter(gateway, name, outcome)).sum()
    }

    /// Waits until a gateway takes early data, or does not.
    pub(crate) fn until_it_takes(&self, gateway: usize, takes: bool) {
        until(&format!("gateway {gateway} takes early data: {takes}"), || {
            self.counter(gateway, "register_takes", "") == u64::from(takes)
        });
    }

    pub(crate) fn until_all_take(&self) {
        (0..self.gateways.len()).for_each(|gateway| self.until_it_takes(gateway, true));
    }
}

fn counter(site: &Site, name: &str, outcome: &str) -> u64 {
    let url = "http://localhost/metrics.json";
    let text = site.curl(&["--unix-socket", "counters.sock", url]).stdout;
    let counters: Value = serde_json::from_slice(&text).unwrap();
    let all = match &counters[format!("quicket_gateway_{name}")] {
        Value::Null => counters[format!("quicket_gateway_{name}_total")].clone(),
        found => found.clone(),
    };
    // Nothing was counted of what has labels.
    let Some(all) = all.as_array() else { return 0 };
    let is_it = |entry: &&Value| outcome.is_empty() || entry["labels"]["outcome"] == outcome;
    all.iter().filter(is_it).map(|entry| entry["value"].as_u64().unwrap()).sum()
}

fn text(dir: &Path, table: &str) -> String {
    format!(
        "secrets = \"secrets\"\n[[site]]\nnames = [\"*\"]\n[[site.route]]\nrespond = {{ body = \"here\" }}\n\
         [metrics]\nlisten = \"unix:{}\"\n{table}",
        dir.join("counters.sock").display()
    )
}

fn write_secrets(dir: &TempDir, secrets: &SiteSecrets) {
    let path = dir.path().join("secrets");
    fs::write(&path, secrets.to_file()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn fresh() -> u8 {
    use std::sync::atomic::{AtomicU8, Ordering};
    static NEXT: AtomicU8 = AtomicU8::new(100);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
