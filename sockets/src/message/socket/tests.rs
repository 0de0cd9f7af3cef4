use std::sync::mpsc::{self, Sender};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use super::*;
use crate::message::bound::set_coming;
use crate::message::{MsgFlags, StreamFlags};
use crate::{ClientTls, Identity, ServerTls};

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(20);

/// A waker that looks at the socket that it is woken for.
struct Curious(Socket, Sender<SocketAddr>);

impl Wake for Curious {
    fn wake(self: Arc<Self>) {
        self.1.send(self.0.local_addr()).unwrap();
    }
}

#[test]
fn a_waker_may_use_the_socket() {
    let socket = Socket::new_v4();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket.set_alpn(b"curious").unwrap();
    socket.listen(1).unwrap();
    let (tell, told) = mpsc::channel();
    let waker = Waker::from(Arc::new(Curious(socket.clone(), tell)));
    assert!(!socket.poll_change(&PollId::unique(), &waker).readable);
    drop(waker);
    let address = socket.local_addr();
    let stops = thread::spawn(move || socket.listen(0));
    assert_eq!(told.recv_timeout(PATIENCE), Ok(address), "it waits for a lock");
    stops.join().unwrap().unwrap();
}

/// An address that another socket is just binding is waited for, but not with the socket locked.
#[test]
fn a_socket_can_be_used_while_it_is_bound() {
    let first = Socket::new_v4();
    first.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = first.local_addr();
    set_coming(address, true);
    let socket = Socket::new_v4();
    let (tell, bound) = mpsc::channel();
    let binds = thread::spawn({
        let socket = socket.clone();
        move || tell.send(socket.bind(address)).unwrap()
    });
    let (mut free, mut looks) = (0, 0);
    while bound.try_recv().is_err() {
        looks += 1;
        free += u32::from(socket.shared.control.try_lock().is_ok());
        thread::sleep(Duration::from_millis(1));
    }
    binds.join().unwrap();
    set_coming(address, false);
    assert!(free * 2 > looks, "locked in {} of {looks} looks", looks - free);
}

/// The core notes how sending streams ended for APIs that ask; this one has an account of its own.
#[test]
fn streams_that_are_over_leave_nothing_behind() {
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let client = ClientTls::builder().pinned([identity.fingerprint()]).alpn(["test"]);
    let client = client.build().unwrap();
    let server = ServerTls::builder(identity).alpn(["test"]).build().unwrap();
    let (listening, connecting) = (Socket::new_v4(), Socket::new_v4());
    listening.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    listening.set_alpn(b"test").unwrap();
    listening.listen(1).unwrap();
    connecting.connect(listening.local_addr()).unwrap();
    let accepts = thread::spawn(move || {
        let accepted = listening.accept().unwrap();
        accepted.accept_tls(server).map(|()| accepted).unwrap()
    });
    connecting.connect_tls(client, "localhost").unwrap();
    let accepted = accepts.join().unwrap();
    let mut buffer = [0; 9];
    for _ in 0..5 {
        let new = StreamFlags::NEW | StreamFlags::FIN;
        connecting.send_message(b"question", None, new.into()).unwrap();
        assert_eq!(accepted.recv_message(&mut buffer, MsgFlags::NONE).unwrap().len, 8);
        accepted.send_message(b"answer", None, StreamFlags::FIN.into()).unwrap();
        assert_eq!(connecting.recv_message(&mut buffer, MsgFlags::NONE).unwrap().len, 6);
    }
    let start = Instant::now();
    while accepted.bytes_to_send() != Ok(0) {
        assert!(start.elapsed() < PATIENCE, "the peer acknowledges nothing");
        thread::sleep(Duration::from_millis(1));
    }
    let session = accepted.control().session(Errno::EINVAL).unwrap().clone();
    assert_eq!(session.conn.look(|conn| conn.send_ends.len()), 0);
}
