//! Arbitrary sequences of calls to a few sockets of messages that reach each other.
//!
//! A run is a function of bytes: who begins how, then steps of one byte for the socket, one for
//! the call, and what the call needs. No call may panic, here or in the threads behind the
//! sockets, or wait longer than it was told to.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Once};
use std::thread;
use std::time::Duration;

use quicket::message::{
    CryptoLevel, EventType, MsgFlags, PollId, Shutdown, Socket, StreamFlags, StreamInfo,
};
use quicket::{ClientTls, Identity, ServerTls};

/// Steps of one run, so that no input takes long.
const MAX_STEPS: usize = 200;
/// How long calls wait that wait.
const PATIENCE: Duration = Duration::from_millis(2);
/// Longer than any call may take, in ticks of [`TICK`]: a process that is stopped, or gets no
/// processor, does not tick.
const TOO_LONG: u64 = 3_000;
const TICK: Duration = Duration::from_millis(10);
/// The number of the option that names an address.
const MIGRATION: i32 = 6;

/// What all runs share. Addresses stay in use, so that runs do not make new ones.
struct World {
    client: Arc<ClientTls>,
    server: Arc<ServerTls>,
    holders: Vec<Socket>,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let identity = Identity::self_signed(["localhost"]).unwrap();
    let client = ClientTls::builder().pinned([identity.fingerprint()]).alpn(["a", "b"]);
    let server = ServerTls::builder(identity).alpn(["a"]).early_data(true);
    let hold = |_| {
        let socket = Socket::new_v4();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        socket
    };
    World {
        client: Arc::new(client.build().unwrap()),
        server: Arc::new(server.build().unwrap()),
        holders: (0..3).map(hold).collect(),
    }
});

fn address(which: u8) -> SocketAddr {
    let holders = &WORLD.holders;
    holders[usize::from(which) % holders.len()].local_addr()
}

/// Choices made of bytes; zeros when there are no more.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// Up to 255 bytes, with their number before them.
    fn chunk(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    /// A stream: mostly one that may exist.
    fn stream(&mut self) -> StreamInfo {
        let what = self.byte();
        let id = match what % 8 {
            0 | 1 => -1,
            7 => i64::from(self.word()) << 31,
            _ => i64::from(self.byte() % 16),
        };
        let flags = match what >> 3 {
            0..=7 => StreamFlags::NONE,
            8..=15 => StreamFlags::NEW | StreamFlags::DONTWAIT,
            16..=23 => StreamFlags::FIN,
            24..=27 => StreamFlags::NEW | StreamFlags::UNI | StreamFlags::FIN,
            _ => StreamFlags::from_bits(self.word()),
        };
        StreamInfo::new(id, flags)
    }

    fn flags(&mut self) -> MsgFlags {
        match self.byte() {
            0..=127 => MsgFlags::NONE,
            128..=159 => MsgFlags::DATAGRAM,
            160..=191 => MsgFlags::PEEK,
            192..=223 => MsgFlags::MORE,
            _ => MsgFlags::from_bits(self.word()),
        }
    }
}

struct Run {
    sockets: [Socket; 4],
}

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let mut input = Input(input);
    let mut run = Run { sockets: std::array::from_fn(|_| socket(false)) };
    run.begin(input.byte());
    for _ in 0..MAX_STEPS {
        if input.0.is_empty() {
            break;
        }
        let before = ticks();
        run.step(&mut input);
        assert!(ticks() - before < TOO_LONG, "a call waits for ever");
    }
}

/// How often a thread of this process has slept for [`TICK`].
fn ticks() -> u64 {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    static START: Once = Once::new();
    START.call_once(|| {
        thread::spawn(|| {
            loop {
                thread::sleep(TICK);
                TICKS.fetch_add(1, Ordering::Relaxed);
            }
        });
    });
    TICKS.load(Ordering::Relaxed)
}

fn socket(is_v6: bool) -> Socket {
    let socket = if is_v6 { Socket::new_v6() } else { Socket::new_v4() };
    socket.set_receive_timeout(Some(PATIENCE));
    socket.set_send_timeout(Some(PATIENCE));
    socket.set_nonblocking(true);
    socket
}

impl Run {
    /// Unless the sockets are to begin as they are: a client, a listener, and what it accepted.
    fn begin(&mut self, how: u8) {
        if how.is_multiple_of(4) {
            return;
        }
        let [client, server, accepted, _] = &mut self.sockets;
        // Another run may still have the address.
        let listens = server.bind(address(how)).and_then(|()| server.listen(4));
        if listens.is_err() {
            return;
        }
        let connects = client.bind(address(how >> 2)).and_then(|()| client.connect(address(how)));
        if connects.is_err() {
            return;
        }
        if how & 64 != 0 {
            (0..=u8::MAX).filter_map(EventType::from_number).for_each(|kind| {
                client.set_event(kind, true);
                server.set_event(kind, true);
            });
        }
        let _ = client.connect_tls_early(Arc::clone(&WORLD.client), "localhost");
        if how & 32 != 0 {
            return;
        }
        server.set_receive_timeout(Some(Duration::from_secs(5)));
        server.set_nonblocking(false);
        if let Ok(socket) = server.accept() {
            let _ = socket.accept_tls(Arc::clone(&WORLD.server));
            socket.set_nonblocking(true);
            *accepted = socket;
        }
        for socket in [&*server, &*accepted] {
            socket.set_receive_timeout(Some(PATIENCE));
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let index = usize::from(input.byte()) % self.sockets.len();
        let call = input.byte();
        let socket = &self.sockets[index];
        // What a call answers is its own affair.
        match call % 24 {
            0 => {
                let _ = socket.bind(address(input.byte()));
            }
            1 => {
                let _ = socket.listen(usize::from(input.byte() % 4));
            }
            2 => {
                if let Ok(accepted) = socket.accept() {
                    accepted.set_nonblocking(input.byte() < 200);
                    self.sockets[(index + 1) % 4] = accepted;
                }
            }
            3 => self.connect(index, input),
            4 => {
                let _ = socket.connect_tls_early(Arc::clone(&WORLD.client), "localhost");
            }
            5 => {
                let _ = socket.accept_tls(Arc::clone(&WORLD.server));
            }
            6..=8 => send(socket, input),
            9..=11 => {
                let mut buffer = vec![0; usize::from(input.byte()) << (call >> 5)];
                let _ = socket.recv_message(&mut buffer, input.flags());
            }
            12 => {
                let level = [CryptoLevel::Initial, CryptoLevel::Handshake, CryptoLevel::App];
                let level = level[usize::from(input.byte()) % level.len()];
                let _ = socket.send_handshake(input.chunk(), level, input.flags());
            }
            13 | 14 => set_option(socket, input),
            15 => {
                let number = i32::from(input.byte() % 16);
                let mut value = input.chunk().to_vec();
                let _ = socket.get_option(number, &mut value);
            }
            16 => {
                let _ = socket.open_stream(input.stream());
            }
            17 => look(socket),
            18 => adjust(socket, input),
            19 => self.sockets[index] = socket_or_clone(&self.sockets, index, input.byte()),
            20 if input.byte() < 64 => {
                let ways = [Shutdown::Read, Shutdown::Write, Shutdown::Both];
                let _ = socket.shutdown(ways[usize::from(call) % ways.len()]);
            }
            21 => {
                let _ = socket.wait_established();
            }
            22 => {
                let _ = socket.update_keys();
            }
            _ => std::thread::sleep(Duration::from_micros(u64::from(input.byte()))),
        }
    }

    /// Never to an address that is not ours.
    fn connect(&self, index: usize, input: &mut Input<'_>) {
        let socket = &self.sockets[index];
        // A socket that is not bound gets an address of its own, and a thread.
        let _ = socket.bind(address(input.byte()));
        let _ = socket.connect(address(input.byte()));
    }
}

fn socket_or_clone(sockets: &[Socket; 4], index: usize, what: u8) -> Socket {
    match what {
        0..=63 => sockets[usize::from(what) % 4].clone(),
        64..=127 => socket(true),
        128..=191 => socket(false),
        _ => sockets[index].clone(),
    }
}

fn send(socket: &Socket, input: &mut Input<'_>) {
    let len = usize::from(input.byte()) << (input.byte() % 12);
    let data = vec![7; len];
    let info = Some(input.stream()).filter(|_| input.byte() < 200);
    let _ = socket.send_message(&data, info, input.flags());
}

fn set_option(socket: &Socket, input: &mut Input<'_>) {
    let number = i32::from(input.byte() % 16);
    if number == MIGRATION {
        let _ = socket.migrate(address(input.byte()));
    } else {
        let _ = socket.set_option(number, input.chunk());
    }
}

fn look(socket: &Socket) {
    let _ = (socket.poll_state(), socket.is_established(), socket.local_addr());
    let _ = (socket.peer_addr(), socket.negotiated_alpn(), socket.requested_server_name());
    let _ = (socket.bytes_to_receive(), socket.bytes_to_send(), socket.bytes_unsent());
    let waker = std::task::Waker::noop();
    let _ = socket.poll_change(&PollId::unique(), waker);
    let _ = (socket.session_ticket(), socket.token(), socket.transport_param_ext());
}

fn adjust(socket: &Socket, input: &mut Input<'_>) {
    let value = input.word();
    match input.byte() % 5 {
        0 => socket.set_send_buffer(value as usize),
        1 => socket.set_receive_buffer(value as usize),
        2 => socket.set_reuse_port(value & 1 == 1),
        3 => socket.set_nonblocking(value & 1 == 1),
        _ => {
            let kind = EventType::from_number(value as u8 % 16);
            kind.into_iter().for_each(|kind| socket.set_event(kind, value & 256 != 0));
        }
    }
}
