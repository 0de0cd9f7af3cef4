//! A socket of AF_XDP: memory that the kernel and this process share, and four rings.
//!
//! | Ring | From | To | What stands in it |
//! | --- | --- | --- | --- |
//! | fill | us | the kernel | frames that it may write what comes into |
//! | receive | the kernel | us | frames that have come |
//! | send | us | the kernel | frames that are to leave |
//! | completion | the kernel | us | frames that have left |
//!
//! The kernel is trusted, but a fault of a driver is not to become one of ours: its indices are read once and checked as
//! those of a program are, and so is where it says that a frame is. What cannot be ends the device.
#![allow(unsafe_code, reason = "rings and frames are in memory that the kernel has mapped")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use quicket_ring::Lie;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING,
    XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions,
    XdpOptionsFlags, XdpRingFlags, XdpRingOffset, XdpUmemReg, XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt};

/// Frames of a queue each way, and positions of each ring.
pub(super) const FRAMES: u32 = 2048;
/// What the kernel keeps free before a frame that has come (XDP_PACKET_HEADROOM).
const HEADROOM: u32 = 256;
/// Lengths of frames in memory, of which the kernel takes powers of two.
const CHUNKS: [u32; 2] = [2048, 4096];
/// The longest frame, its header of Ethernet included.
pub(super) const MAX_FRAME: u32 = CHUNKS[1] - HEADROOM;
/// What frames that leave may take of the kernel's memory, in octets: all of a ring, as it counts.
const SEND_BUFFER: usize = FRAMES as usize * 4096;
/// How often the kernel is told to send in one turn; each time it sends 32 frames by default.
const KICKS: u32 = 8;

/// The socket of one queue of a device.
#[derive(Debug)]
pub(super) struct Socket {
    socket: OwnedFd,
    frames: Frames,
    fill: Filling<u64>,
    received: Draining<XdpDesc>,
    send: Filling<XdpDesc>,
    completed: Draining<u64>,
    /// Frames for sending that are ours.
    free: Vec<u64>,
    /// Frames that are to be given back, for which the kernel has not said yet that there is room.
    back: Vec<u64>,
    /// Positions of the ring of sending that are filled and not published yet.
    pending: u32,
    is_zero_copy: bool,
}

impl Socket {
    /// Makes a socket and binds it to a queue of a device. The frames of that queue come to it once a program hands
    /// them to it. `longest` is the length of frames, at most [`MAX_FRAME`].
    ///
    /// # Errors
    ///
    /// `InvalidInput` when there is no such queue; `ResourceBusy` when the queue has a socket of somebody else;
    /// `PermissionDenied` without CAP_NET_RAW; or what the system says.
    pub(super) fn bind(device: u32, queue: u32, longest: u32, copy: bool) -> io::Result<Self> {
        let chunk = CHUNKS.into_iter().find(|chunk| chunk - HEADROOM >= longest);
        let chunk = chunk.ok_or(io::ErrorKind::InvalidInput)?;
        let flags = SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)?;
        // Without the privilege to, what leaves is bounded by what every socket has.
        let _ = sockopt::set_socket_send_buffer_size_force(&socket, SEND_BUFFER);
        let frames = Frames::new(2 * FRAMES, chunk)?;
        let registration = XdpUmemReg {
            addr: frames.area.base.as_ptr().expose_provenance() as u64,
            len: frames.area.len as u64,
            chunk_size: chunk,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(&socket, registration)?;
        sockopt::set_xdp_umem_fill_ring_size(&socket, FRAMES)?;
        sockopt::set_xdp_umem_completion_ring_size(&socket, FRAMES)?;
        sockopt::set_xdp_rx_ring_size(&socket, FRAMES)?;
        sockopt::set_xdp_tx_ring_size(&socket, FRAMES)?;
        let offsets = sockopt::xdp_mmap_offsets(&socket)?;
        let fd = socket.as_fd();
        let mut fill = Filling::map(fd, XDP_UMEM_PGOFF_FILL_RING, &offsets.fr)?;
        let received = Draining::map(fd, XDP_PGOFF_RX_RING, &offsets.rx)?;
        let send = Filling::map(fd, XDP_PGOFF_TX_RING, &offsets.tx)?;
        let completed = Draining::map(fd, XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr)?;
        let address = |frame: u32| u64::from(frame) * u64::from(chunk);
        (0..FRAMES).for_each(|at| fill.put(at, address(at)));
        fill.0.advance(FRAMES);
        let mut flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP;
        if copy {
            // Behind the driver nobody could write into our memory but the kernel.
            flags |= SocketAddrXdpFlags::XDP_COPY;
        }
        rustix::net::bind(&socket, &SocketAddrXdp::new(flags, device, queue))?;
        let options = sockopt::xdp_options(&socket)?;
        let is_zero_copy = options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        let free = (FRAMES..2 * FRAMES).map(address).collect();
        let (pending, back) = (0, Vec::with_capacity(FRAMES as usize));
        Ok(Self {
            socket,
            frames,
            fill,
            received,
            send,
            completed,
            free,
            back,
            pending,
            is_zero_copy,
        })
    }

    /// Whether the driver reads and writes the frames' memory itself.
    pub(super) const fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Whether its device has gone, or to another network namespace, from which it may have come back without this socket (`xsk_notifier`
    /// of net/xdp/xsk.c): told once.
    pub(super) fn has_lost_its_device(&self) -> bool {
        matches!(sockopt::socket_error(&self.socket), Ok(Err(_)))
    }

    /// How many frames the kernel has had for the socket and dropped, as they were longer than the memory of one.
    pub(super) fn too_long(&self) -> u64 {
        let Ok(counted) = sockopt::xdp_statistics(&self.socket) else { return 0 };
        // Where the kernel copies, those for which there was no memory are among them, and counted by themselves, too (`xsk_rcv` of
        // net/xdp/xsk.c).
        let starved = counted.rx_fill_ring_empty_descs.filter(|_| !self.is_zero_copy);
        counted.rx_dropped.saturating_sub(starved.unwrap_or(0))
    }

    /// How many frames have come.
    #[inline]
    pub(super) fn ready(&self) -> Result<u32, Lie> {
        self.received.filled()
    }

    /// What stands `at` positions behind the first of those that are ready, and the length of that frame: 65,535 for what
    /// is more, which no frame has.
    #[inline]
    pub(super) fn get(&self, at: u32) -> (XdpDesc, u16) {
        let descriptor = self.received.get(at);
        (descriptor, u16::try_from(descriptor.len).unwrap_or(u16::MAX))
    }

    /// Copies a frame that has come to the beginning of `to`. Returns whether that was done: not if `to` is shorter, or it
    /// is only a part of one.
    #[inline]
    pub(super) fn load(&self, descriptor: XdpDesc, to: &mut [u8]) -> Result<bool, Lie> {
        let XdpDesc { addr, len, options } = descriptor;
        let frame = self.frames.at(addr, len).ok_or(Lie)?;
        let Some(to) = to.get_mut(..len as usize) else { return Ok(false) };
        if options.contains(XdpDescOptions::XDP_PKT_CONTD) {
            return Ok(false);
        }
        // SAFETY: the frame lies within the memory (`at`). It has come and is not given back yet, so that the
        // kernel does not write to it. `to` is as long, and other memory.
        unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), to.as_mut_ptr(), to.len()) };
        Ok(true)
    }

    /// Gives back the first `n` frames that have come.
    ///
    /// The kernel shows frames before it shows that it has taken their memory off the ring of filling (`xsk_flush` of
    /// net/xdp/xsk.c): who is fast enough finds no room there, and gives them back the next time.
    pub(super) fn release(&mut self, n: u32) -> Result<(), Lie> {
        give_back(&self.received, &mut self.fill, &mut self.back, n, |addr| {
            self.frames.start(addr)
        })?;
        self.received.0.advance(n);
        if self.is_zero_copy && self.fill.needs_wakeup() {
            // A look is what wakes the driver; what it says of the device is told elsewhere.
            let mut nothing = [0_u8; 0];
            let _ = rustix::net::recv(&self.socket, &mut nothing, RecvFlags::DONTWAIT);
        }
        Ok(())
    }

    /// Copies the parts of a frame, to be sent with the next [`Socket::flush`]. Returns whether there was room.
    #[inline]
    pub(super) fn send<const N: usize>(&mut self, parts: [&[u8]; N]) -> Result<bool, Lie> {
        if self.free.is_empty() {
            self.collect()?;
        }
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let Ok(len) = u32::try_from(len) else { return Ok(false) };
        if self.send.room()? <= self.pending {
            return Ok(false);
        }
        let Some(addr) = self.free.pop() else { return Ok(false) };
        let Some(to) = self.frames.at(addr, len) else {
            self.free.push(addr);
            return Ok(false);
        };
        let mut at = 0;
        for part in parts {
            // SAFETY: the frame, which has room for all parts, lies within the memory (`at`), and is ours: none that is free is
            // in a ring.
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), to.as_ptr().add(at), part.len());
            }
            at += part.len();
        }
        let options = XdpDescOptions::empty();
        self.send.put(self.pending, XdpDesc { addr, len, options });
        self.pending += 1;
        Ok(true)
    }

    /// Takes back frames that have left.
    fn collect(&mut self) -> Result<(), Lie> {
        let n = self.completed.filled()?;
        for at in 0..n {
            let start = self.frames.start(self.completed.get(at));
            self.frames.at(start, 0).ok_or(Lie)?;
            // There are no more for sending than this, whatever the kernel says.
            if self.free.len() >= FRAMES as usize {
                return Err(Lie);
            }
            self.free.push(start);
        }
        self.completed.0.advance(n);
        Ok(())
    }

    /// Has the kernel send what is there. Returns whether something is left that it has not taken yet: then this is
    /// called again soon.
    ///
    /// # Errors
    ///
    /// `ENXIO` when the device has gone; `ENETDOWN` while it is down.
    pub(super) fn flush(&mut self) -> Result<bool, Errno> {
        self.send.0.advance(self.pending);
        self.pending = 0;
        for _ in 0..KICKS {
            if !self.is_owed() {
                return Ok(false);
            }
            // Where the kernel copies, nothing leaves unless it is told to.
            if self.is_zero_copy && !self.send.needs_wakeup() {
                return Ok(true);
            }
            match rustix::net::send(&self.socket, &[], SendFlags::DONTWAIT) {
                // Busy, out of memory for now, or more than it sends at once.
                Ok(_) | Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.is_owed())
    }

    /// Whether there are frames that the kernel has not taken yet.
    fn is_owed(&self) -> bool {
        self.send.room().is_ok_and(|room| room < FRAMES)
    }
}

/// Puts the first `n` frames that have come into the ring of filling, behind those of the last time; those for which there
/// is no room stay in `back`.
fn give_back(
    received: &Draining<XdpDesc>,
    fill: &mut Filling<u64>,
    back: &mut Vec<u64>,
    n: u32,
    start: impl Fn(u64) -> u64,
) -> Result<(), Lie> {
    // There are no more for what comes than this, whatever the kernel says.
    if back.len() + n as usize > FRAMES as usize {
        return Err(Lie);
    }
    back.extend((0..n).map(|at| start(received.get(at).addr)));
    let now = back.len().min(fill.room()? as usize);
    for (at, addr) in (0..).zip(back.drain(..now)) {
        fill.put(at, addr);
    }
    fill.0.advance(now as u32);
    Ok(())
}

impl AsFd for Socket {
    /// Readable when frames have come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A mapping.
#[derive(Debug)]
struct Area {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the address is of a mapping that lives until the drop and belongs to no thread. Nothing is accessed but
// through the socket that owns it, and there by `&mut self`, or by atomics and reads of what the kernel has left to us.
unsafe impl Send for Area {}

impl Area {
    fn new(base: *mut std::ffi::c_void, len: usize) -> io::Result<Self> {
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, whole, and no reference into it outlives `self`. An error could only
        // mean that it is not mapped. The kernel has pinned what it still writes to.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Memory for frames.
#[derive(Debug)]
struct Frames {
    area: Area,
    /// The length of one, a power of two.
    chunk: u32,
}

impl Frames {
    fn new(frames: u32, chunk: u32) -> io::Result<Self> {
        let len = frames as usize * chunk as usize;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address of the system's choice, over none that exists.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, access, flags)? };
        Ok(Self { area: Area::new(base, len)?, chunk })
    }

    /// Where the frame begins in which an address is.
    #[inline]
    fn start(&self, addr: u64) -> u64 {
        addr & !u64::from(self.chunk - 1)
    }

    /// Where `len` octets from an address on are; none if they are not within one frame.
    #[inline]
    fn at(&self, addr: u64, len: u32) -> Option<NonNull<u8>> {
        let within = addr - self.start(addr);
        if addr >= self.area.len as u64 || within + u64::from(len) > u64::from(self.chunk) {
            return None;
        }
        // SAFETY: the address is within the mapping, whose length fits `usize`.
        Some(unsafe { self.area.base.add(addr as usize) })
    }
}

/// A ring of [`FRAMES`] positions.
#[derive(Debug)]
struct Ring<T> {
    area: Area,
    /// Offsets of our index, of that of the kernel, of its flags, and of the positions.
    ours: usize,
    theirs: usize,
    flags: usize,
    entries: usize,
    /// Our index: what stands in memory is for the kernel.
    own: u32,
    entry: PhantomData<T>,
}

/// What stands in rings.
trait Entry: Copy {}
impl Entry for u64 {}
// Numbers and flags: any pattern of bits is one.
impl Entry for XdpDesc {}

impl<T: Entry> Ring<T> {
    /// Maps a ring whose indices are at these offsets, and whose flags and positions `offsets` names.
    fn map(
        socket: BorrowedFd<'_>,
        page: u64,
        [ours, theirs]: [u64; 2],
        offsets: &XdpRingOffset,
    ) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let place = |at: u64, align: usize| {
            usize::try_from(at).ok().filter(|at| at % align == 0).ok_or_else(invalid)
        };
        let word = align_of::<AtomicU32>();
        let (ours, theirs) = (place(ours, word)?, place(theirs, word)?);
        // Linux 5.4.
        let flags = place(offsets.flags.ok_or_else(invalid)?, word)?;
        let entries = place(offsets.desc, align_of::<T>())?;
        let len = entries.checked_add(FRAMES as usize * size_of::<T>()).ok_or_else(invalid)?;
        if [ours, theirs, flags].iter().any(|at| at + size_of::<AtomicU32>() > len) {
            return Err(invalid());
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let kind = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address of the system's choice, over none that exists.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, access, kind, socket, page)? };
        let area = Area::new(base, len)?;
        Ok(Self { area, ours, theirs, flags, entries, own: 0, entry: PhantomData })
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `at` is one of the three words' offsets, which `map` has found to lie within the mapping and to be
        // aligned. Nobody here accesses it but by atomics, and it lives as long as `self` is borrowed.
        unsafe { self.area.base.add(at).cast::<AtomicU32>().as_ref() }
    }

    /// The kernel's index. What it has read or written before it went on happened before.
    #[inline]
    fn theirs(&self) -> u32 {
        self.word(self.theirs).load(Ordering::Acquire)
    }

    /// The kernel may have the next `n` positions, with what was read or written there.
    #[inline]
    fn advance(&mut self, n: u32) {
        self.own = self.own.wrapping_add(n);
        self.word(self.ours).store(self.own, Ordering::Release);
    }

    #[inline]
    fn position(&self, at: u32) -> NonNull<T> {
        let at = (self.own.wrapping_add(at) & (FRAMES - 1)) as usize;
        // SAFETY: there are `FRAMES` positions from `entries` on within the mapping, which is aligned there.
        unsafe { self.area.base.add(self.entries + at * size_of::<T>()).cast() }
    }
}

/// A ring that we fill.
#[derive(Debug)]
struct Filling<T>(Ring<T>);

impl<T: Entry> Filling<T> {
    fn map(socket: BorrowedFd<'_>, page: u64, offsets: &XdpRingOffset) -> io::Result<Self> {
        Ring::map(socket, page, [offsets.producer, offsets.consumer], offsets).map(Self)
    }

    /// How many positions the kernel has passed, or never had.
    #[inline]
    fn room(&self) -> Result<u32, Lie> {
        FRAMES.checked_sub(self.0.own.wrapping_sub(self.0.theirs())).ok_or(Lie)
    }

    /// Fills a position, one of those that there is room for.
    #[inline]
    fn put(&mut self, at: u32, entry: T) {
        // SAFETY: a position within the mapping; the kernel does not read those that it has not been given.
        unsafe { self.0.position(at).write_volatile(entry) }
    }

    /// Whether the kernel only goes on when it is told to.
    fn needs_wakeup(&self) -> bool {
        let flags = self.0.word(self.0.flags).load(Ordering::Relaxed);
        flags & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }
}

/// A ring that the kernel fills.
#[derive(Debug)]
struct Draining<T>(Ring<T>);

impl<T: Entry> Draining<T> {
    fn map(socket: BorrowedFd<'_>, page: u64, offsets: &XdpRingOffset) -> io::Result<Self> {
        Ring::map(socket, page, [offsets.consumer, offsets.producer], offsets).map(Self)
    }

    /// How many positions the kernel has filled that we have not passed.
    #[inline]
    fn filled(&self) -> Result<u32, Lie> {
        let filled = self.0.theirs().wrapping_sub(self.0.own);
        if filled <= FRAMES { Ok(filled) } else { Err(Lie) }
    }

    /// What stands in a position, one of those that are filled.
    #[inline]
    fn get(&self, at: u32) -> T {
        // SAFETY: a position within the mapping, of a type that may have any bits; the kernel does not write to those
        // that it has filled and we have not passed.
        unsafe { self.0.position(at).read_volatile() }
    }
}

#[cfg(test)]
#[path = "xsk_tests.rs"]
mod tests;
