//! What the application does with datagrams (RFC 9221).

use crate::config::TransportConfig;
use crate::connection::Connection;
use crate::crypto::TAG_LEN;
use crate::datagrams::{DatagramError, DatagramFate, Datagrams, WhenFull};

pub(in crate::connection) fn new_datagrams(config: &TransportConfig) -> Datagrams {
    let announced = crate::connection::parameters::max_datagram_frame_size(config);
    Datagrams::new(config.datagram_send_buffer, config.datagram_receive_buffer, announced)
}

/// Datagrams (RFC 9221).
impl Connection {
    /// Queues an unreliable datagram; returns a number that names it.
    pub fn send_datagram(&mut self, data: &[u8], full: WhenFull) -> Result<u64, DatagramError> {
        self.update_datagram_limit();
        self.datagrams.send(data, full)
    }

    /// The oldest datagram received and not yet taken.
    pub fn peek_datagram(&self) -> Option<&[u8]> {
        self.datagrams.peek()
    }

    /// Takes the datagram that [`Connection::peek_datagram`] shows.
    pub fn pop_datagram(&mut self) {
        self.datagrams.pop();
    }

    /// The largest datagram that can be sent now, in bytes; `None` if the peer takes none. It
    /// changes with the path's MTU.
    pub fn max_datagram_size(&mut self) -> Option<usize> {
        self.update_datagram_limit();
        self.datagrams.max_size()
    }

    /// How many bytes of datagrams wait to be sent.
    pub fn datagram_bytes_unsent(&self) -> usize {
        self.datagrams.bytes_unsent()
    }

    /// Reports through [`Connection::poll_datagram_fate`] what becomes of datagrams, or stops to.
    pub fn follow_datagrams(&mut self, follow: bool) {
        self.datagrams.follow_fates(follow);
    }

    /// What became of a datagram.
    pub fn poll_datagram_fate(&mut self) -> Option<DatagramFate> {
        self.datagrams.poll_fate()
    }

    /// How many bytes of frames a 1-RTT packet on the active path has room for.
    pub fn max_packet_payload(&self) -> usize {
        let path = self.paths.active();
        let dcid = self.cids.remote.get(path.key()).map_or(0, |cid| cid.len());
        // First byte, connection ID, packet number, tag.
        let overhead = dcid.saturating_add(1 + 4 + TAG_LEN);
        usize::from(path.max_datagram()).saturating_sub(overhead)
    }

    pub(in crate::connection) fn update_datagram_limit(&mut self) {
        let room = self.max_packet_payload();
        self.datagrams.set_path_limit(room);
    }
}
