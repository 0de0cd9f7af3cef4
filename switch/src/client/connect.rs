//! Finding the switch, and starting it where there is none.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::{Uid, geteuid};

use crate::environment;
use crate::protocol::{
    MAX_MESSAGE, Message, Notice, Question, Refusal, Refused, Reply, Request, VERSION, encode,
};
use crate::rendezvous::{self, NAME_VARIABLE, default_name};
use crate::sys;

/// The program that is started as the switch where there is none.
pub const PROGRAM_VARIABLE: &str = "QUICKET_SWITCH_PROGRAM";

/// What the loader reads.
const PRELOAD_VARIABLE: &str = "LD_PRELOAD";
/// How the name of the library of `quicket run` begins.
const PRELOADED: &[u8] = b"libquicket_preload";

/// How long a switch that was started may take to answer.
const START: Duration = Duration::from_secs(5);
/// Between two attempts to reach it.
const RETRY: Duration = Duration::from_millis(5);
/// How long it may take to connect, in seconds.
const CONNECT: i64 = 5;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a program finds the switch, and what it is called there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The name of the switch, or the path of its local socket ([`rendezvous::path`]).
    pub name: String,
    /// What to start where there is no switch, with the arguments `switch --detach --name PATH`, and
    /// `--forward` where the switch before had it; `None`: nothing.
    pub program: Option<PathBuf>,
    /// What the program calls itself, for people; at most 64 bytes.
    pub label: String,
}

impl Default for Options {
    /// The switch of this user, or the one that `QUICKET_SWITCH` names. Started where there is none is
    /// what `QUICKET_SWITCH_PROGRAM` names, or this program if it is called `quicket`, or `quicket`. A program
    /// with more rights than its caller does not look at these variables, and starts nothing that is not
    /// named by an absolute path.
    fn default() -> Self {
        let this = env::current_exe().ok();
        let called = this.as_deref().and_then(|path| path.file_name());
        // Where a privileged program's file is, its caller may have chosen, too: by a link.
        let is_quicket = called == Some(OsStr::new("quicket")) && !environment::is_privileged();
        let named = environment::variable(PROGRAM_VARIABLE).map(PathBuf::from);
        let program = named.or_else(|| this.clone().filter(|_| is_quicket));
        let label = called.map(|name| printable(&name.to_string_lossy())).unwrap_or_default();
        Self {
            name: default_name(),
            program: Some(program.unwrap_or_else(|| "quicket".into())),
            label,
        }
    }
}

impl Options {
    /// The same with the path of the switch in place of its name, for here and now: programs may change
    /// their user later.
    pub(super) fn resolved(mut self) -> io::Result<Self> {
        if self.name == rendezvous::SYSTEM {
            // The operator says who may have what there.
            self.program = None;
        }
        let path = rendezvous::path(&self.name)?.into_os_string().into_string();
        self.name = path.map_err(|path| {
            let text = format!("the path of the switch's socket is no text: {}", path.display());
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        Ok(self)
    }
}

fn printable(text: &str) -> String {
    let mut label: String = text.chars().filter(|letter| !letter.is_control()).collect();
    while label.len() > crate::protocol::MAX_LABEL {
        label.pop();
    }
    label
}

/// A connection to the switch.
#[derive(Debug)]
pub(super) struct Connection(OwnedFd);

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// What is received: a message and its descriptors; `None` at the end of the connection.
pub(super) type Received = Option<(Message, Vec<OwnedFd>)>;

impl Connection {
    /// Connects to the switch, if there is one whose word may be taken: that of this user or of root.
    /// `ConnectionRefused`: there is none.
    pub(super) fn open(name: &str) -> io::Result<Self> {
        let address = UnixAddr::new(&rendezvous::path(name)?)?;
        let (kind, flags) = (SockType::SeqPacket, SockFlag::SOCK_CLOEXEC);
        let socket = socket(AddressFamily::Unix, kind, flags, None)?;
        // Who has taken the name may take no connections.
        setsockopt(&socket, sockopt::SendTimeout, &TimeVal::seconds(CONNECT))?;
        match connect(socket.as_raw_fd(), &address) {
            Err(Errno::ENOENT) => return Err(io::ErrorKind::ConnectionRefused.into()),
            Err(Errno::EAGAIN) => {
                let text = format!("the switch {name} takes no connections");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            Err(Errno::EACCES) => return Err(not_for_this_user(name)),
            result => result?,
        }
        let peer = Uid::from_raw(getsockopt(&socket, sockopt::PeerCredentials)?.uid());
        if peer != geteuid() && !peer.is_root() {
            let text = format!(
                "the switch {name} is that of user {peer}, whom this user cannot trust: choose another \
                 with {NAME_VARIABLE}"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
        Ok(Self(socket))
    }

    /// The same; starts the switch if there is none, and has it forward every datagram if `forwards`.
    pub(super) fn open_or_start(options: &Options, forwards: bool) -> io::Result<Self> {
        let begun = Instant::now();
        let mut started = false;
        loop {
            match Self::open(&options.name) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    if !started {
                        start(options, forwards)?;
                        started = true;
                    } else if begun.elapsed() > START {
                        return Err(io::Error::new(
                            io::ErrorKind::TimedOut,
                            format!(
                                "the switch {} was started and does not answer: run quicket switch \
                                 by hand to see why",
                                options.name
                            ),
                        ));
                    }
                }
                result => return result,
            }
            std::thread::sleep(RETRY);
        }
    }

    /// Asks something, without waiting for room or for the answer.
    pub(super) fn send(
        &self,
        number: u32,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let question = Question { version: VERSION, number, request };
        sys::send_with(self.as_fd(), &encode(&question)?, descriptors)
    }

    /// The same where nobody else receives: if the switch has closed the connection, the error is what it has said
    /// before it did.
    pub(super) fn send_first(
        &self,
        number: u32,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        match self.send(number, request, descriptors) {
            Err(error) if has_ended(&error) => loop {
                // At the end at the latest that is an error.
                drop(self.receive_soon()?);
            },
            result => result,
        }
    }

    /// Waits for a message.
    pub(super) fn receive(&self) -> io::Result<Received> {
        let mut buffer = vec![0; MAX_MESSAGE + 1];
        let mut receive = || sys::receive_with(self.as_fd(), &mut buffer);
        let received = match receive() {
            // It ended without reading all that it was asked, of which the system tells first, and once. What
            // it had said is still there.
            Err(error) if has_ended(&error) => receive(),
            received => received,
        };
        let (len, descriptors) = match received {
            Err(error) if has_ended(&error) => return Ok(None),
            received => received?,
        };
        if len == 0 {
            return Ok(None);
        }
        match Message::decode(buffer.get(..len).unwrap_or_default())? {
            Message::Refused(refused) => Err(not_heard(refused)),
            message => Ok(Some((message, descriptors))),
        }
    }

    /// Waits for a message, but not for ever.
    pub(super) fn receive_soon(&self) -> io::Result<(Message, Vec<OwnedFd>)> {
        let begun = Instant::now();
        let timeout = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::MAX);
        loop {
            let mut fds = [PollFd::new(self.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, timeout) {
                Err(Errno::EINTR) if begun.elapsed() < PATIENCE => {}
                Err(error) => return Err(error.into()),
                Ok(0) => {
                    let text = "the switch does not answer";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
                Ok(_) => break,
            }
        }
        let gone = || io::Error::new(io::ErrorKind::ConnectionReset, "the switch has gone");
        self.receive()?.ok_or_else(gone)
    }

    /// Asks, and waits for the answer, where nobody else receives; `notice` gets what comes before it.
    pub(super) fn ask(
        &self,
        number: u32,
        request: Request,
        descriptors: &[BorrowedFd<'_>],
        mut notice: impl FnMut(Notice),
    ) -> io::Result<(Reply, Vec<OwnedFd>)> {
        self.send_first(number, request, descriptors)?;
        loop {
            match self.receive_soon()? {
                (Message::Answer { number: of, reply }, came) if of == number => {
                    return Ok((reply, came));
                }
                (Message::Notice(told), _) => notice(told),
                _ => {}
            }
        }
    }
}

/// The switch has ended, or has closed the connection.
pub(super) fn has_ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

/// The system does not let this user connect (unix(7)): the socket, or a folder on the way, is another's.
fn not_for_this_user(name: &str) -> io::Error {
    let owner = rendezvous::path(name).and_then(std::fs::metadata).map(|found| found.uid());
    let text = match owner {
        Ok(owner) if owner != geteuid().as_raw() => rendezvous::of_another(owner),
        _ => format!(
            "this user may not connect to the switch {name}: permission denied; ls -l shows who may, or \
             choose another with {NAME_VARIABLE}"
        ),
    };
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

/// The switch takes no questions.
fn not_heard(refused: Refused) -> io::Error {
    let Refused { why, text } = refused;
    // A switch of the first version does not know that there are others.
    let text = match (why, text.contains("not understood")) {
        (Refusal::Invalid, true) => {
            format!("the switch does not understand version {VERSION}, end it: {text}")
        }
        _ => text,
    };
    io::Error::new(kind_of(why), text)
}

/// A refusal as the system would say it.
pub(super) const fn kind_of(why: Refusal) -> io::ErrorKind {
    match why {
        Refusal::InUse => io::ErrorKind::AddrInUse,
        Refusal::Invalid => io::ErrorKind::InvalidInput,
        Refusal::Full => io::ErrorKind::StorageFull,
        Refusal::Denied => io::ErrorKind::PermissionDenied,
        Refusal::Later => io::ErrorKind::WouldBlock,
        Refusal::Version => io::ErrorKind::Unsupported,
    }
}

/// What the loader preloads for a program, without the library that gives it QUIC sockets: the switch
/// has none.
fn without_ours(preload: &OsStr) -> OsString {
    let is_ours = |path: &[u8]| {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        name.starts_with(PRELOADED)
    };
    let separates = |byte: &u8| matches!(byte, b' ' | b':');
    let others = preload.as_bytes().split(separates).filter(|path| !is_ours(path));
    OsString::from_vec(others.collect::<Vec<_>>().join(&b':'))
}

/// Whether a program may be started as the switch: by a privileged one only if neither PATH nor the folder in
/// which that was started decides which it is.
fn may_start(program: &Path, privileged: bool) -> bool {
    !privileged || program.is_absolute()
}

/// Starts the switch, in a session of its own. Of several that are started at once one stays.
fn start(options: &Options, forwards: bool) -> io::Result<()> {
    let none = || {
        let text = format!(
            "there is no switch {}, and none is to be started: run quicket switch, or have the operator run \
             quicket switch --system",
            options.name
        );
        io::Error::new(io::ErrorKind::NotConnected, text)
    };
    let program = options.program.as_ref().ok_or_else(none)?;
    let privileged = environment::is_privileged();
    if !may_start(program, privileged) {
        let text = format!(
            "a program with more rights than its caller does not search for the switch {}: have it run \
             before, or name its program by an absolute path",
            program.display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let mut command = Command::new(program);
    if privileged {
        command.env_clear();
    }
    command.args(["switch", "--detach", "--name", &options.name]);
    if forwards {
        command.arg("--forward");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // That the switch is ready says nothing of the service that needs it.
    command.env_remove("NOTIFY_SOCKET");
    if let Some(preload) = environment::variable(PRELOAD_VARIABLE) {
        command.env(PRELOAD_VARIABLE, without_ours(&preload));
    }
    let status = match command.status() {
        // The program has its children waited for by the system (SIGCHLD), or by another thread. Whether
        // the switch has started is seen by whether it answers.
        Err(error) if error.raw_os_error() == Some(Errno::ECHILD as i32) => return Ok(()),
        status => status,
    };
    let status = status.map_err(|error| {
        let text = format!(
            "cannot start the switch, {}: {error}; install quicket, or name it with {PROGRAM_VARIABLE}",
            program.display()
        );
        io::Error::new(error.kind(), text)
    })?;
    if status.success() {
        return Ok(());
    }
    let text = format!("the switch, {}, ended at once: {status}", program.display());
    Err(io::Error::other(text))
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{Backlog, bind, listen};

    use super::*;

    /// A switch that hears nobody: it says why, and closes, before or after it was asked.
    #[test]
    fn who_is_not_heard_reads_why_whether_he_has_asked_by_then_or_not() {
        let path = env::temp_dir().join(format!("quicket-unheard-{}", std::process::id()));
        let flags = SockFlag::SOCK_CLOEXEC;
        let switch = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None).unwrap();
        bind(switch.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        listen(&switch, Backlog::new(8).unwrap()).unwrap();
        let close = |says: &[Message]| {
            let taken = sys::accept(switch.as_fd()).unwrap();
            for message in says {
                sys::send_with(taken.as_fd(), &encode(message).unwrap(), &[]).unwrap();
            }
        };
        let open = || Connection::open(path.to_str().unwrap()).unwrap();
        let text = rendezvous::of_another(7);
        let refused = Message::Refused(Refused { why: Refusal::Denied, text: text.clone() });
        let denied = |error: io::Error| {
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
            assert_eq!(error.to_string(), text);
        };
        // What was said before is not taken for the reason.
        let says = [Message::Notice(Notice::Count), refused];

        let before = open();
        close(&says);
        denied(before.ask(1, Request::Status, &[], drop).unwrap_err());

        let after = open();
        after.send(1, Request::Status, &[]).unwrap();
        close(&says);
        assert!(matches!(after.receive_soon(), Ok((Message::Notice(Notice::Count), _))));
        denied(after.receive_soon().unwrap_err());

        // Without a reason it has ended.
        let gone = |error: io::Error| assert!(has_ended(&error), "{error}");
        let before = open();
        close(&[]);
        gone(before.ask(1, Request::Status, &[], drop).unwrap_err());
        let after = open();
        after.send(1, Request::Status, &[]).unwrap();
        close(&[]);
        gone(after.receive_soon().unwrap_err());
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_privileged_program_starts_nothing_that_path_or_its_folder_decides() {
        for (program, is_absolute) in
            [("quicket", false), ("./quicket", false), ("/usr/bin/quicket", true)]
        {
            assert!(may_start(Path::new(program), false));
            assert_eq!(may_start(Path::new(program), true), is_absolute, "{program}");
        }
    }

    #[test]
    fn the_switch_gets_what_others_preload_and_not_what_gives_programs_quic_sockets() {
        let rest = |preload: &str| without_ours(OsStr::new(preload));
        assert_eq!(rest("/a/libquicket_preload-12.so:/b/libjemalloc.so"), "/b/libjemalloc.so");
        assert_eq!(rest("one.so libquicket_preload.so two.so"), "one.so:two.so");
        assert_eq!(rest("libquicket_preload.so"), "");
        assert_eq!(rest("/libquicket_preload.d/other.so"), "/libquicket_preload.d/other.so");
    }
}
