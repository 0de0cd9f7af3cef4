use super::names::tests::names_of;
use super::*;
use dns_server::DnsServer;

#[path = "dns_server_for_tests.rs"]
mod dns_server;

const NAME: &str = "app.example";

fn resolver(server: &DnsServer) -> Arc<Resolver> {
    Arc::new(Resolver::new(vec![server.address]))
}

async fn found(resolver: &Arc<Resolver>, name: &str) -> (Vec<String>, Option<u64>) {
    let found = resolver.find(name).await.unwrap();
    let mut addresses: Vec<_> =
        found.addresses.iter().map(|found| found.ip().to_string()).collect();
    addresses.sort_unstable();
    (addresses, found.ttl.map(|ttl| ttl.as_secs()))
}

#[tokio::test]
async fn dns_says_how_long_an_answer_holds() {
    let server = DnsServer::start();
    let resolver = resolver(&server);
    server.say(NAME, 7, &["192.0.2.1", "192.0.2.2", "2001:db8::1"]);
    let three = ["192.0.2.1", "192.0.2.2", "2001:db8::1"].map(str::to_owned).to_vec();
    assert_eq!(found(&resolver, NAME).await, (three, Some(7)));
    // Nothing is kept here.
    server.say(NAME, 300, &["192.0.2.3"]);
    assert_eq!(found(&resolver, NAME).await, (vec!["192.0.2.3".to_owned()], Some(300)));
    // What leads to it may move earlier.
    server.alias("www.example", 5, NAME);
    assert_eq!(found(&resolver, "www.example").await, (vec!["192.0.2.3".to_owned()], Some(5)));
    server.forget(NAME);
    assert!(resolver.find(NAME).await.is_err());
}

#[tokio::test]
async fn what_is_too_long_for_udp_comes_over_tcp() {
    let server = DnsServer::start();
    server.truncate();
    let many: Vec<String> = (0..200).map(|at| format!("192.0.2.{at}")).collect();
    server.say(NAME, 9, &many.iter().map(String::as_str).collect::<Vec<_>>());
    let (addresses, ttl) = found(&resolver(&server), NAME).await;
    assert_eq!((addresses.len(), ttl), (super::MAX_ADDRESSES, Some(9)));
}

#[tokio::test]
async fn names_that_no_host_should_have_are_looked_up() {
    let server = DnsServer::start();
    server.say("my_app", 7, &["192.0.2.1"]);
    let resolver = resolver(&server);
    assert_eq!(found(&resolver, "my_app").await.0, ["192.0.2.1"]);
    // This host's own are not, whatever a name server says.
    server.say("localhost", 7, &["192.0.2.1"]);
    let own = resolver.find("localhost").await.unwrap();
    assert!(own.addresses.iter().all(|found| found.ip().is_loopback()) && own.ttl.is_none());
    assert!(resolver.find("a..b").await.is_err());
}

#[test]
fn the_hosts_file_is_read_as_the_system_reads_it() {
    let hosts = "127.0.0.1 localhost\n# 10.0.0.1 none\n10.0.0.2\tApp.example app # other\n\n::1";
    for (name, is_there) in [
        ("localhost", true),
        ("app.example", true),
        ("APP", true),
        ("app.example.", true),
        ("none", false),
        ("other", false),
        ("10.0.0.2", false),
        ("example", false),
        ("", false),
    ] {
        assert_eq!(has_host(hosts, name), is_there, "{name:?}");
    }
    for (name, is_it) in
        [("localhost", true), ("A.LocalHost.", true), ("localhost.a", false), ("", false)]
    {
        assert_eq!(is_localhost(name), is_it, "{name:?}");
    }
}

#[tokio::test]
async fn what_name_servers_do_not_know_the_system_is_asked_for() {
    let resolver = Arc::new(Resolver::new(Vec::new()));
    let found = resolver.find("localhost").await.unwrap();
    assert!(found.addresses.iter().all(|found| found.ip().is_loopback()) && found.ttl.is_none());
    let error = resolver.find("nowhere.invalid").await.unwrap_err();
    assert_eq!(error.to_string(), system("nowhere.invalid").await.unwrap_err().to_string());
}

/// Waits until what a name leads to is this.
async fn until_known(names: &Arc<Names>, wanted: &[&str]) {
    let wanted: Vec<SocketAddr> =
        wanted.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 9)).collect();
    let waiting = async {
        while names.now(&tokio::runtime::Handle::current()) != wanted {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap();
}

#[tokio::test]
async fn a_name_is_asked_for_again_when_its_time_is_over_and_not_before() {
    let server = DnsServer::start();
    let names = names_of(NAME, &resolver(&server), None);
    let begun = tokio::time::Instant::now();
    server.say(NAME, 2, &["192.0.2.1"]);
    assert_eq!(names.addresses().await.unwrap().len(), 1);
    server.say(NAME, 3600, &["192.0.2.2"]);
    until_known(&names, &["192.0.2.2"]).await;
    assert!(begun.elapsed() >= Duration::from_secs(2));
    // The next one holds for long.
    server.say(NAME, 0, &["192.0.2.3"]);
    for _ in 0..100 {
        assert_eq!(names.addresses().await.unwrap()[0].ip().to_string(), "192.0.2.2");
    }
    assert_eq!(server.asked(), 2);
}

#[tokio::test]
async fn an_answer_counts_for_a_second_at_least_and_as_long_as_the_file_says_at_most() {
    let server = DnsServer::start();
    server.say(NAME, 0, &["192.0.2.1"]);
    let hasty = names_of(NAME, &resolver(&server), None);
    let begun = tokio::time::Instant::now();
    for _ in 0..100 {
        hasty.addresses().await.unwrap();
    }
    assert!(server.asked() as u64 <= 1 + begun.elapsed().as_secs());
    server.say(NAME, 3600, &["192.0.2.1"]);
    let bounded = names_of(NAME, &resolver(&server), Some(Duration::from_millis(50)));
    bounded.addresses().await.unwrap();
    server.say(NAME, 3600, &["192.0.2.2"]);
    until_known(&bounded, &["192.0.2.2"]).await;
}

#[tokio::test]
async fn a_name_server_that_vanishes_costs_no_addresses_and_no_time() {
    let server = DnsServer::start();
    let address = server.address;
    server.say(NAME, 1, &["192.0.2.1"]);
    let names = names_of(NAME, &resolver(&server), None);
    names.addresses().await.unwrap();
    drop(server);
    // Long after its time it counts still, and who needs it waits for moments at most, once.
    let begun = tokio::time::Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        let asked = tokio::time::Instant::now();
        assert_eq!(names.addresses().await.unwrap()[0].ip().to_string(), "192.0.2.1");
        assert!(asked.elapsed() < Duration::from_secs(3));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(names.has_failed());
    let server = DnsServer::at(address);
    server.say(NAME, 1, &["192.0.2.2"]);
    until_known(&names, &["192.0.2.2"]).await;
}

/// Nothing listens, and nothing is known: that is said within the time of the resolver.
#[tokio::test]
async fn without_a_name_server_and_addresses_there_is_an_error() {
    let server = DnsServer::start();
    let resolver = resolver(&server);
    drop(server);
    let names = names_of(NAME, &resolver, None);
    assert_ne!(names.addresses().await.unwrap_err().to_string(), "");
}
