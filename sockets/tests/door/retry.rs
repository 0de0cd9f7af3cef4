//! Clients that a generation has asked to come again (Retry, RFC 9000, Section 8.1.2), and that do so when the next one
//! serves: what they come with leads to the one that has asked.

use std::sync::mpsc::RecvTimeoutError;

use quicket::{KeyExchange, RetryPolicy};

use super::*;

/// How long a client may need that was sent a Retry, and a little more.
const COMES_AGAIN: Duration = Duration::from_secs(6);

/// Whether a datagram begins with an Initial with a token (RFC 9000, Section 17.2.2).
fn has_token(datagram: &[u8]) -> bool {
    let after = |at: usize| at + 1 + usize::from(datagram[at]);
    datagram[0] & 0x80 != 0 && datagram[after(after(5))] != 0
}

/// A relay that passes each client's first datagram on, and holds back all others until it is opened.
struct Later {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Later {
    fn before(server: SocketAddr) -> Self {
        let front = socket();
        let address = front.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let known = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            let mut ways = BTreeMap::<SocketAddr, (UdpSocket, Vec<Vec<u8>>)>::new();
            let (mut buffer, mut passed) = (vec![0; 65_536], 0);
            while !known.is_over.load(Ordering::SeqCst) {
                while let Ok((len, client)) = front.recv_from(&mut buffer) {
                    let (_, held) = ways.entry(client).or_insert_with(|| (socket(), Vec::new()));
                    held.push(buffer[..len].to_vec());
                    let mut came = known.came.lock().unwrap();
                    let tokens = came.entry(client).or_default();
                    *tokens += usize::from(has_token(&buffer[..len]));
                    if ways.len() > passed {
                        passed = ways.len();
                        let (back, held) = &mut ways.get_mut(&client).unwrap();
                        back.send_to(&held.remove(0), server).unwrap();
                    }
                }
                for (client, (back, held)) in &mut ways {
                    while let Ok((len, _)) = back.recv_from(&mut buffer) {
                        front.send_to(&buffer[..len], client).unwrap();
                    }
                    if known.is_open.load(Ordering::SeqCst) {
                        held.drain(..).for_each(|bytes| {
                            back.send_to(&bytes, server).unwrap();
                        });
                    }
                }
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self { address, shared, thread: Some(thread) }
    }

    /// Waits until a client has come again with the token of a Retry.
    fn is_asked_again(&self) {
        let begun = Instant::now();
        while self.shared.came.lock().unwrap().values().sum::<usize>() == 0 {
            assert!(begun.elapsed() < LONG);
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Later {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let _ = self.thread.take().unwrap().join();
    }
}

#[test]
fn a_client_that_was_asked_to_come_again_finds_who_has_asked() {
    for switch in [Switch::new(), Switch::forwarding()] {
        let first = switch.serving(("first", "a"), "127.0.0.1:0".parse().unwrap(), 1, |server| {
            server.retry(RetryPolicy::Always)
        });
        let superseded = &first.superseded;
        let server = first.endpoint.local_addr();
        let relay = Later::before(server);
        let address = relay.address;
        let short = ClientTls::builder().dangerous_no_verification().alpn(["a"]);
        let short = short.key_exchange(&[KeyExchange::X25519]);
        let client = ClientConfig::new(short.build().unwrap());
        let asked = thread::spawn(move || ask_as(address, &client));
        relay.is_asked_again();
        let second = switch.program("second", "a", server, 1);
        superseded.recv_timeout(LONG).unwrap();
        // Nothing comes for longer than what is on its way takes.
        let ends = first.listens.recv_timeout(Duration::from_secs(1));
        assert_eq!(ends, Err(RecvTimeoutError::Timeout), "it listens no more");
        relay.shared.is_open.store(true, Ordering::SeqCst);
        assert_eq!(asked.join().unwrap(), "first");
        assert_eq!(ask(server, "a"), "second");
        assert_eq!(first.listens.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
        drop(second);
    }
}

/// The connection ID of a Retry, which a stranger got for an Initial without a token to this one.
fn asked_again(stranger: &UdpSocket, server: SocketAddr, dcid: &[u8]) -> Option<Vec<u8>> {
    let mut initial = vec![0xc0, 0, 0, 0, 1, dcid.len().try_into().unwrap()];
    initial.extend_from_slice(dcid);
    // No connection ID of its own, no token, and the rest is as long as it says.
    initial.extend_from_slice(&[0, 0, 0x44, 0x80]);
    initial.resize(1200 + dcid.len(), 7);
    stranger.send_to(&initial, server).unwrap();
    let mut buffer = [0; 2048];
    let (len, _) = stranger.recv_from(&mut buffer).ok()?;
    let retry = &buffer[..len];
    assert_eq!(retry[0] & 0xf0, 0xf0, "{retry:?}");
    Some(retry[7..7 + usize::from(retry[6])].to_vec())
}

#[test]
fn a_stranger_who_goes_on_asking_does_not_keep_a_generation() {
    let switch = Switch::new();
    let first = switch.serving(("first", "a"), "127.0.0.1:0".parse().unwrap(), 1, |server| {
        server.retry(RetryPolicy::Always)
    });
    let server = first.endpoint.local_addr();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    stranger.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let begun = Instant::now();
    let dcid = loop {
        match asked_again(&stranger, server, &[5; 8]) {
            Some(dcid) => break dcid,
            None => assert!(begun.elapsed() < LONG),
        }
    };
    let second = switch.program("second", "a", server, 1);
    first.superseded.recv_timeout(LONG).unwrap();
    let (begun, mut asked) = (Instant::now(), 0);
    while first.listens.recv_timeout(Duration::from_millis(100)) == Err(RecvTimeoutError::Timeout) {
        // It knows whose connection ID that is, and is answered by who listens.
        asked += usize::from(asked_again(&stranger, server, &dcid).is_some());
        assert!(begun.elapsed() < 2 * COMES_AGAIN, "{asked}");
    }
    assert!(asked > 3, "{asked}");
    assert_eq!(ask(server, "a"), "second");
    drop(second);
}
