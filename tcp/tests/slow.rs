//! A switch that forwards frames and answers no requests: those who ask it wait, and nobody else.

mod common;

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use common::{PATIENCE, Switch, until};
use quicket_tcp::{Stack, TcpListener, TcpStream};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType,
};

/// Who gives a tuple back, in the language of the switch.
const REMOVE: u8 = 3;

/// Stands between a program and the switch, and holds requests up.
struct Clerk {
    path: PathBuf,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// No request passes.
    is_shut: Mutex<bool>,
    changed: Condvar,
    /// Addresses that were to be given back.
    removals: AtomicUsize,
    /// A request waits.
    is_waiting: AtomicBool,
}

impl Clerk {
    fn start(switch: &Switch) -> Self {
        let path = switch.path.with_extension("clerk");
        let listener = socket();
        rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        let (state, to) = (Arc::new(State::default()), switch.path.clone());
        let of = Arc::clone(&state);
        // It ends when either side does.
        std::thread::spawn(move || serve(&listener, &to, &of));
        Self { path, state }
    }

    fn shut(&self, is_shut: bool) {
        *self.state.is_shut.lock().unwrap() = is_shut;
        self.state.changed.notify_all();
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.shut(false);
        let _ = std::fs::remove_file(&self.path);
    }
}

fn socket() -> OwnedFd {
    let kind = SocketType::SEQPACKET;
    rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
}

fn serve(listener: &OwnedFd, to: &Path, state: &State) {
    let program = rustix::net::accept(listener).unwrap();
    let switch = socket();
    rustix::net::connect(&switch, &SocketAddrUnix::new(to).unwrap()).unwrap();
    std::thread::scope(|scope| {
        // Answers pass at once.
        scope.spawn(|| while pass(switch.as_fd(), program.as_fd(), |_| ()) {});
        let hold = |request: &[u8]| {
            let is_removal = request.first() == Some(&REMOVE);
            state.removals.fetch_add(usize::from(is_removal), Ordering::SeqCst);
            let mut is_shut = state.is_shut.lock().unwrap();
            while *is_shut {
                state.is_waiting.store(true, Ordering::SeqCst);
                is_shut = state.changed.wait(is_shut).unwrap();
            }
            state.is_waiting.store(false, Ordering::SeqCst);
        };
        while pass(program.as_fd(), switch.as_fd(), hold) {}
    });
}

/// Passes a message on with its descriptors. Returns false at the end, of which both sides hear.
fn pass(from: BorrowedFd<'_>, to: BorrowedFd<'_>, hold: impl FnOnce(&[u8])) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let (mut buffer, flags) = ([0; 512], RecvFlags::CMSG_CLOEXEC);
    let message =
        rustix::net::recvmsg(from, &mut [IoSliceMut::new(&mut buffer)], &mut rights, flags);
    let len = message.map_or(0, |message| message.bytes);
    let mut descriptors = Vec::<OwnedFd>::new();
    for part in rights.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    hold(&buffer[..len]);
    let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    assert!(descriptors.is_empty() || rights.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let flags = SendFlags::NOSIGNAL;
    if len > 0
        && rustix::net::sendmsg(to, &[IoSlice::new(&buffer[..len])], &mut rights, flags).is_ok()
    {
        return true;
    }
    for side in [from, to] {
        let _ = rustix::net::shutdown(side, Shutdown::Both);
    }
    false
}

fn listen(stack: &Stack) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(stack, "127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A question and its answer.
fn ask(client: &mut TcpStream, server: &mut TcpStream, number: u32) {
    client.write_all(&number.to_be_bytes()).unwrap();
    let mut question = [0; 4];
    server.read_exact(&mut question).unwrap();
    server.write_all(&question).unwrap();
    client.read_exact(&mut question).unwrap();
    assert_eq!(question, number.to_be_bytes());
}

#[test]
fn a_switch_that_does_not_answer_stops_no_connection() {
    let switch = Switch::start();
    let clerk = Clerk::start(&switch);
    let (far, slow) = (switch.stack(), Stack::open(&clerk.path).unwrap());
    let (listener, address) = listen(&slow);
    let accept = || {
        let client = TcpStream::connect_timeout(&far, address, PATIENCE).unwrap();
        let (server, _) = listener.accept().unwrap();
        for stream in [&client, &server] {
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        (client, server)
    };
    let mut before = accept();
    // More than the stack asks for at once.
    let others: Vec<_> = (0..40).map(|_| listen(&slow)).collect();
    let addresses: Vec<SocketAddr> = others.iter().map(|(_, address)| *address).collect();
    clerk.shut(true);
    drop(others);
    until("nothing is given back", || clerk.state.is_waiting.load(Ordering::SeqCst));
    // All of that is while the request waits: connections that there are, a new one, and the end of one.
    (0..200).for_each(|number| ask(&mut before.0, &mut before.1, number));
    let mut after = accept();
    (0..200).for_each(|number| ask(&mut after.0, &mut after.1, number));
    drop(after);
    std::thread::scope(|scope| {
        // Who asks the switch for something waits, alone.
        let waits = scope.spawn(|| listen(&slow).1);
        (0..200).for_each(|number| ask(&mut before.0, &mut before.1, number));
        assert_eq!(clerk.state.removals.load(Ordering::SeqCst), 1, "the first is still held up");
        assert!(!waits.is_finished(), "the switch has answered nothing");
        clerk.shut(false);
        waits.join().unwrap();
    });
    // All are the system's again.
    for address in addresses {
        until("the system does not get it back", || std::net::TcpListener::bind(address).is_ok());
    }
    // With that of who has waited, each once.
    let removals = || clerk.state.removals.load(Ordering::SeqCst);
    until("not all are given back", || removals() == 41);
    ask(&mut before.0, &mut before.1, 7);
}
