//! Requests about network devices.
//!
//! Attaching one has the kernel check a program and the driver set up its queues, and detaching has it wait for frames that
//! are on their way: a thread does that, one at a time.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::{io, thread};

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use super::{DEVICE, Daemon, ERRORS, LINKS, token};
use crate::device::{Device, MAX_DEVICES, Mode};
use crate::protocol::{Answer, Name};

/// What a thread has done, for the connection that asked for it.
pub(super) struct Work {
    connection: usize,
    serial: u64,
    /// The device that is attached; none if one is detached.
    result: io::Result<Option<Device>>,
}

/// What threads do.
pub(super) struct Works {
    sender: Sender<Work>,
    done: Receiver<Work>,
    is_busy: bool,
}

impl Works {
    pub(super) fn new() -> Self {
        let (sender, done) = channel();
        Self { sender, done, is_busy: false }
    }
}

impl Daemon {
    /// Has a device attached. None if that is on its way.
    pub(super) fn attach(&mut self, at: usize, name: Name, mode: Mode) -> Option<Answer> {
        let name = match self.may_work(at, name) {
            Ok(name) => name,
            Err(answer) => return Some(answer),
        };
        if self.forwarder.network().all().any(|device| device.name == name) {
            return Some(Answer::refuse(Errno::EXIST, format!("{name} is attached already")));
        }
        if self.forwarder.network().len() >= MAX_DEVICES {
            let why = format!("{MAX_DEVICES} devices are attached: detach one first");
            return Some(Answer::refuse(Errno::NOSPC, why));
        }
        let tuples = match self.prepare() {
            Ok(tuples) => tuples,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let what = "the switch for packets may not attach devices: start it by root, or with CAP_BPF, \
                            CAP_NET_ADMIN, CAP_NET_RAW and CAP_PERFMON";
                return Some(failed(what, &error));
            }
            Err(error) => return Some(failed("cannot attach devices", &error)),
        };
        self.work(at, move || Device::attach(&name, mode, &tuples).map(Some))
    }

    /// The table of tuples in the kernel, and ears for changes of devices.
    fn prepare(&mut self) -> io::Result<std::sync::Arc<quicket_bpf::Tuples>> {
        let is_new = self.forwarder.network().links().is_none();
        let tuples = self.forwarder.prepare_network()?;
        if let Some(links) = self.forwarder.network().links().filter(|_| is_new) {
            epoll::add(&self.events, links, token(LINKS, 0), EventFlags::IN)?;
        }
        Ok(tuples)
    }

    /// Has a device detached. None if that is on its way.
    pub(super) fn detach(&mut self, at: usize, name: Name) -> Option<Answer> {
        let name = match self.may_work(at, name) {
            Ok(name) => name,
            Err(answer) => return Some(answer),
        };
        let network = self.forwarder.network();
        let index = network.all().find(|device| device.name == name).map(|device| device.index);
        let Some(device) = index.and_then(|index| network.remove(index)) else {
            return Some(Answer::refuse(Errno::NOENT, format!("{name} is not attached")));
        };
        self.unwatch_device(&device);
        self.work(at, move || {
            drop(device);
            Ok(None)
        })
    }

    /// The name of a device, if the program is one that may attach and detach, and nothing else is being done.
    fn may_work(&self, at: usize, name: Name) -> Result<String, Answer> {
        let connection = self.connections.get(at).and_then(Option::as_ref);
        let user = connection.map_or(u32::MAX, |connection| connection.user);
        if user != 0 && user != rustix::process::geteuid().as_raw() {
            let why = "only root, and the user of the switch for packets, attach devices";
            return Err(Answer::refuse(Errno::PERM, why));
        }
        if self.works.is_busy {
            let why = "another device is being attached or detached: try again";
            return Err(Answer::refuse(Errno::BUSY, why));
        }
        let invalid = || Answer::refuse(Errno::INVAL, "this is no name of a device");
        name.as_str().map(str::to_owned).ok_or_else(invalid)
    }

    /// Does it on a thread.
    fn work(
        &mut self,
        at: usize,
        work: impl FnOnce() -> io::Result<Option<Device>> + Send + 'static,
    ) -> Option<Answer> {
        let connection = self.connections.get(at).and_then(Option::as_ref)?;
        let (sender, bell) = (self.works.sender.clone(), self.desk.bell.clone());
        let serial = connection.serial;
        let run = move || {
            // The switch has ended, if there is nobody: then a device is detached here.
            let _ = sender.send(Work { connection: at, serial, result: work() });
            let _ = bell.ring();
        };
        if let Err(error) = thread::Builder::new().name("device".into()).spawn(run) {
            return Some(failed("cannot start a thread", &error));
        }
        self.works.is_busy = true;
        self.suspend(at);
        None
    }

    /// Takes up what the thread has done.
    pub(super) fn hear_works(&mut self) {
        while let Ok(Work { connection, serial, result }) = self.works.done.try_recv() {
            self.works.is_busy = false;
            let answer = match result {
                Ok(Some(device)) => self.take_in(device),
                Ok(None) => Answer::Done,
                Err(error) => failed("", &error),
            };
            // It is done, even if nobody waits for the answer any more.
            if self.resume(connection, serial) {
                self.answer(connection, &answer);
            }
        }
    }

    /// Forwards by a device from now on.
    fn take_in(&mut self, device: Device) -> Answer {
        for socket in device.descriptors() {
            if let Err(error) = epoll::add(&self.events, socket, token(DEVICE, 0), EventFlags::IN) {
                return failed("cannot watch the device", &error.into());
            }
        }
        let of = token(ERRORS, device.index() as usize);
        for socket in device.error_sockets() {
            if let Err(error) = epoll::add(&self.events, socket, of, EventFlags::IN) {
                return failed("cannot watch what ICMP says by the device", &error.into());
            }
        }
        let attached = device.describe();
        if let Err(error) = self.forwarder.network().add(device) {
            return failed(&format!("cannot attach {}", attached.name), &error);
        }
        log::info!("{} is attached", attached.name);
        Answer::Attached(attached.into())
    }

    fn unwatch_device(&self, device: &Device) {
        device.descriptors().chain(device.error_sockets()).for_each(|socket| self.unwatch(socket));
    }

    /// The device of a place in the list.
    pub(super) fn list_device(&mut self, at: u32) -> Answer {
        match self.forwarder.network().all().nth(at as usize) {
            Some(attached) => Answer::Attached(attached.into()),
            None => Answer::refuse(Errno::NOENT, "there are no more devices"),
        }
    }

    /// Lets devices go that have gone, or whose rings cannot be.
    pub(super) fn remove_broken_devices(&mut self) {
        while let Some(index) = self.forwarder.network().take_broken() {
            if let Some(device) = self.forwarder.network().remove(index) {
                self.unwatch_device(&device);
                let name = device.describe().name;
                log::warn!("{name} is detached: it has gone, or its rings or VLANs cannot be");
                // As it may take a while.
                let dropped = thread::Builder::new().name("device".into());
                // Without a thread it is dropped here, by the error.
                let _ = dropped.spawn(move || drop(device));
            }
        }
    }
}

fn failed(what: &str, error: &io::Error) -> Answer {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    let code = code.unwrap_or_else(|| match error.kind() {
        io::ErrorKind::PermissionDenied => Errno::PERM,
        io::ErrorKind::ResourceBusy => Errno::BUSY,
        io::ErrorKind::InvalidInput => Errno::INVAL,
        io::ErrorKind::NotFound => Errno::NOENT,
        io::ErrorKind::AlreadyExists => Errno::EXIST,
        io::ErrorKind::Unsupported => Errno::OPNOTSUPP,
        _ => Errno::IO,
    });
    match what {
        "" => Answer::refuse(code, error.to_string()),
        what => Answer::refuse(code, format!("{what}: {error}")),
    }
}
