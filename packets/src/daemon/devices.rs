//! Requests about network devices.
//!
//! Attaching one has the kernel check a program and the driver set up its queues, and detaching has it wait for frames that
//! are on their way: a thread does that, one after the other. So a device is as it was before it is attached again, whatever it was
//! detached for.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::{io, thread};

use quicket_bpf::Tuples;
use quicket_ring::Bell;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use super::{DEVICE, Daemon, ERRORS, LINKS, token};
use crate::device::{Device, MAX_DEVICES, Mode, Record};
use crate::protocol::{Answer, Name, Request};

/// Who asked: the place of a connection, and its serial number.
type Asker = (usize, u64);

/// What the thread does.
enum Job {
    Attach { asker: Asker, name: String, mode: Mode, tuples: Arc<Tuples> },
    Detach { asker: Option<Asker>, device: Box<Device> },
}

/// What the thread has done, for the connection that asked for it.
pub(super) struct Work {
    asker: Asker,
    /// The device that is attached; none if one is detached.
    result: io::Result<Option<Device>>,
}

/// What the thread does, and has done.
pub(super) struct Works {
    record: Arc<Record>,
    /// There from the first device on.
    thread: Option<Worker>,
    sender: Sender<Work>,
    done: Receiver<Work>,
    /// Somebody waits for it.
    is_busy: bool,
}

struct Worker {
    jobs: Sender<Job>,
    thread: JoinHandle<()>,
}

impl Works {
    /// What attaching alters is noted in `record`.
    pub(super) fn new(record: Arc<Record>) -> Self {
        let (sender, done) = channel();
        Self { record, thread: None, sender, done, is_busy: false }
    }

    /// Starts the thread, if there is none.
    fn start(&mut self, bell: &Arc<Bell>) -> io::Result<()> {
        if self.thread.is_some() {
            return Ok(());
        }
        let (jobs, work) = channel();
        let (record, done, bell) =
            (Arc::clone(&self.record), self.sender.clone(), Arc::clone(bell));
        let run = move || run(work, &record, &done, &bell);
        let thread = thread::Builder::new().name("device".into()).spawn(run)?;
        self.thread = Some(Worker { jobs, thread });
        Ok(())
    }

    fn give(&self, job: Job) {
        // There is one, as there is something to do; and it goes on until this is dropped.
        if let Some(Worker { jobs, .. }) = &self.thread {
            let _ = jobs.send(job);
        }
    }

    /// Has a device detached that nobody has asked for.
    fn put_away(&self, device: Device) {
        self.give(Job::Detach { asker: None, device: Box::new(device) });
    }
}

impl Drop for Works {
    /// Waits for what it does, so that nothing of the switch is left when that has ended.
    fn drop(&mut self) {
        if let Some(Worker { jobs, thread }) = self.thread.take() {
            drop(jobs);
            let _ = thread.join();
        }
    }
}

fn run(work: Receiver<Job>, record: &Arc<Record>, done: &Sender<Work>, bell: &Bell) {
    for job in work {
        let (asker, result) = match job {
            Job::Attach { asker, name, mode, tuples } => {
                (Some(asker), Device::attach(&name, mode, &tuples, record).map(Some))
            }
            Job::Detach { asker, device } => {
                drop(device);
                (asker, Ok(None))
            }
        };
        if let Some(asker) = asker {
            // The switch is ending, if there is nobody: then a device is detached here.
            let _ = done.send(Work { asker, result });
            let _ = bell.ring();
        }
    }
}

impl Daemon {
    /// Does what is about devices. None if that is on its way.
    pub(super) fn administer(&mut self, at: usize, request: Option<Request>) -> Option<Answer> {
        match request {
            Some(Request::List { at: place }) => Some(self.list_device(place)),
            Some(Request::Vlans { device, from }) => Some(self.list_vlans(device, from)),
            Some(Request::Attach { name, mode }) => self.attach(at, name, mode),
            Some(Request::Detach { name }) => self.detach(at, name),
            _ => Some(Answer::refuse(Errno::PROTO, "this is no request")),
        }
    }

    /// Has a device attached. None if that is on its way.
    fn attach(&mut self, at: usize, name: Name, mode: Mode) -> Option<Answer> {
        let name = match self.may_work(at, name) {
            Ok(name) => name,
            Err(answer) => return Some(answer),
        };
        if self.forwarder.network().is_attached(&name) {
            return Some(Answer::refuse(Errno::EXIST, format!("{name} is attached already")));
        }
        if self.forwarder.network().len() >= MAX_DEVICES {
            let why = format!("{MAX_DEVICES} devices are attached: detach one first");
            return Some(Answer::refuse(Errno::NOSPC, why));
        }
        if let Err(error) = self.works.start(&self.desk.bell) {
            return Some(failed("cannot start a thread", &error));
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
        self.work(at, |asker| Job::Attach { asker, name, mode, tuples })
    }

    /// The table of tuples in the kernel, and ears for changes of devices.
    fn prepare(&mut self) -> io::Result<Arc<Tuples>> {
        let is_new = self.forwarder.network().links().is_none();
        let tuples = self.forwarder.prepare_network()?;
        if let Some(links) = self.forwarder.network().links().filter(|_| is_new) {
            epoll::add(&self.events, links, token(LINKS, 0), EventFlags::IN)?;
        }
        Ok(tuples)
    }

    /// Has a device detached. None if that is on its way.
    fn detach(&mut self, at: usize, name: Name) -> Option<Answer> {
        let name = match self.may_work(at, name) {
            Ok(name) => name,
            Err(answer) => return Some(answer),
        };
        let network = self.forwarder.network();
        let Some(device) = network.find(&name).and_then(|index| network.remove(index)) else {
            return Some(Answer::refuse(Errno::NOENT, format!("{name} is not attached")));
        };
        self.unwatch_device(&device);
        let device = Box::new(device);
        self.work(at, |asker| Job::Detach { asker: Some(asker), device })
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

    /// Has the thread do it, for a connection that waits.
    fn work(&mut self, at: usize, job: impl FnOnce(Asker) -> Job) -> Option<Answer> {
        let connection = self.connections.get(at).and_then(Option::as_ref)?;
        self.works.give(job((at, connection.serial)));
        self.works.is_busy = true;
        self.suspend(at);
        None
    }

    /// Takes up what the thread has done.
    pub(super) fn hear_works(&mut self) {
        while let Ok(Work { asker: (connection, serial), result }) = self.works.done.try_recv() {
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
        // There are no two of one number: the other one has gone, and nobody has said so yet.
        self.let_go(device.index());
        if let Err((what, error)) = self.watch_device(&device) {
            // Not here, as that waits.
            self.unwatch_device(&device);
            self.works.put_away(device);
            return failed(what, &error.into());
        }
        let attached = device.describe();
        if let Err(error) = self.forwarder.network().add(device) {
            return failed(&format!("cannot attach {}", attached.name), &error);
        }
        log::info!("{} is attached", attached.name);
        Answer::Attached(attached.into())
    }

    fn watch_device(&self, device: &Device) -> Result<(), (&'static str, Errno)> {
        let watch = |socket, of| epoll::add(&self.events, socket, of, EventFlags::IN);
        for socket in device.descriptors() {
            watch(socket, token(DEVICE, 0)).map_err(|error| ("cannot watch the device", error))?;
        }
        let of = token(ERRORS, device.index() as usize);
        for socket in device.error_sockets() {
            let what = "cannot watch what ICMP says by the device";
            watch(socket, of).map_err(|error| (what, error))?;
        }
        Ok(())
    }

    fn unwatch_device(&self, device: &Device) {
        device.descriptors().chain(device.error_sockets()).for_each(|socket| self.unwatch(socket));
    }

    /// The device of a place in the list.
    fn list_device(&mut self, at: u32) -> Answer {
        match self.forwarder.network().nth(at as usize) {
            Some(attached) => Answer::Attached(attached.into()),
            None => Answer::refuse(Errno::NOENT, "there are no more devices"),
        }
    }

    fn list_vlans(&mut self, device: u32, from: u16) -> Answer {
        match self.forwarder.network().vlans(device, from) {
            Some(vlans) => Answer::Vlans(vlans),
            None => Answer::refuse(Errno::NOENT, "no device of that number is attached"),
        }
    }

    /// Lets devices go that have gone, or whose rings cannot be.
    pub(super) fn remove_broken_devices(&mut self) {
        while let Some(index) = self.forwarder.network().take_broken() {
            self.let_go(index);
        }
    }

    /// Has a device detached, if there is one of that number.
    fn let_go(&mut self, index: u32) {
        if let Some(device) = self.forwarder.network().remove(index) {
            self.unwatch_device(&device);
            let name = device.name();
            log::warn!("{name} is detached: it has gone, or its rings or VLANs cannot be");
            self.works.put_away(device);
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
        io::ErrorKind::Interrupted => Errno::INTR,
        _ => Errno::IO,
    });
    match what {
        "" => Answer::refuse(code, error.to_string()),
        what => Answer::refuse(code, format!("{what}: {error}")),
    }
}

#[cfg(test)]
#[path = "devices_tests.rs"]
mod tests;
