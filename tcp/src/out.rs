//! The way out: packets become frames in slots of the port, and many are published at once.

use quicket_packets::{ETHERNET_LEN, MIN_FRAME, Sender};

use crate::segment::{Ends, Reply, emit};

/// Frames that wait to be published at most: then the switch has something to do meanwhile.
const BATCH: u32 = 32;

/// Frames on their way into the ring of a port.
#[derive(Debug)]
pub(crate) struct Out {
    sender: Sender,
    /// Frames that have room where none is left.
    capacity: u32,
    /// Frames that are written and not published.
    written: u32,
    /// The switch has left what cannot be.
    is_broken: bool,
    /// The switch sleeps, and its bell is to be rung.
    must_ring: bool,
    /// Frames that were written.
    #[cfg(test)]
    pub(crate) log: Vec<Vec<u8>>,
}

impl Out {
    /// Of a port that has sent nothing yet.
    pub(crate) fn new(mut sender: Sender) -> Self {
        let room = sender.room(u32::MAX);
        let (capacity, is_broken) = (room.unwrap_or(0), room.is_err());
        Self {
            sender,
            capacity,
            written: 0,
            is_broken,
            must_ring: false,
            #[cfg(test)]
            log: Vec::new(),
        }
    }

    /// Whether the switch has taken all frames. Until then it asks whose their source is.
    pub(crate) fn is_drained(&mut self) -> bool {
        let capacity = self.capacity;
        self.written == 0 && self.sender.room(capacity).is_ok_and(|room| room >= capacity)
    }

    /// Whether the switch has left what cannot be: nothing leaves any more.
    pub(crate) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Whether another frame has room.
    pub(crate) fn has_room(&mut self) -> bool {
        let wanted = self.written + 1;
        match self.sender.room(wanted) {
            Ok(room) => room >= wanted,
            Err(_) => {
                self.is_broken = true;
                false
            }
        }
    }

    /// Writes a frame whose packet has a length. Without room, or if the packet is longer than a slot, it is lost.
    pub(crate) fn write<R>(&mut self, len: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        let end = ETHERNET_LEN + len;
        let padded = end.max(MIN_FRAME);
        let has_room = self.has_room();
        let slot = if has_room { self.sender.slot(self.written) } else { None };
        let Some(frame) = slot.and_then(|slot| slot.get_mut(..padded)) else {
            return write(&mut vec![0; len]);
        };
        // Addresses of Ethernet mean nothing in memory.
        frame[..ETHERNET_LEN].fill(0);
        frame[end..].fill(0);
        let result = write(&mut frame[ETHERNET_LEN..end]);
        let kind: u16 = if frame[ETHERNET_LEN] >> 4 == 4 { 0x800 } else { 0x86dd };
        frame[12..ETHERNET_LEN].copy_from_slice(&kind.to_be_bytes());
        #[cfg(test)]
        self.log.push(frame.to_vec());
        self.sender.set_len(self.written, u16::try_from(padded).unwrap_or(u16::MAX));
        self.written += 1;
        if self.written >= BATCH {
            self.publish();
        }
        result
    }

    /// Sends a segment of ours.
    pub(crate) fn reply(&mut self, ends: &Ends, reply: Reply) {
        let (ip, tcp) = reply.headers(ends);
        self.write(ip.buffer_len(), |packet| emit(&ip, &tcp, packet));
    }

    fn publish(&mut self) {
        if self.written > 0 {
            self.must_ring |= self.sender.publish(std::mem::take(&mut self.written));
        }
    }

    /// Publishes what is written. Returns whether the switch's bell is to be rung.
    pub(crate) fn flush(&mut self) -> bool {
        self.publish();
        std::mem::take(&mut self.must_ring)
    }

    /// Says that this side waits for room; the bell rings when there is some. False if there is by now.
    pub(crate) fn wait(&mut self) -> bool {
        self.sender.wait().unwrap_or_else(|_| {
            self.is_broken = true;
            false
        })
    }

    pub(crate) fn wake(&mut self) {
        self.sender.wake();
    }
}
