//! Finds streams.

use quicket_wire::StreamId;

use super::id_map::IdMap;
use super::pool::OutOfMemory;
use super::slab::{Slab, Slot};
use super::stream::Stream;

/// All streams with state, found by ID or place. The stream found last is found again without
/// a search: packets of one stream come in trains.
#[derive(Debug)]
pub(super) struct Table {
    slab: Slab<Stream>,
    map: IdMap,
    last: Option<(StreamId, Slot)>,
}

impl Table {
    pub(super) const fn new(seed: u64) -> Self {
        Self { slab: Slab::new(), map: IdMap::new(seed), last: None }
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// How many streams the memory is for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slab.capacity()
    }

    /// Gives back the memory that no stream needs.
    pub(super) fn trim(&mut self) {
        self.slab.shrink();
        self.map.trim();
    }

    /// The place of stream `id`.
    #[inline]
    pub(super) fn find(&mut self, id: StreamId) -> Option<Slot> {
        if let Some((last, slot)) = self.last
            && last == id
        {
            return Some(slot);
        }
        let slot = self.map.get(id.as_u64())?;
        self.last = Some((id, slot));
        Some(slot)
    }

    #[inline]
    pub(super) fn get(&self, slot: Slot) -> Option<&Stream> {
        self.slab.get(slot)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Stream> {
        self.slab.get_mut(slot)
    }

    /// The storage itself, for the queues that run through it.
    pub(super) fn slab_mut(&mut self) -> &mut Slab<Stream> {
        &mut self.slab
    }

    /// All places that may hold a stream.
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot> + use<> {
        self.slab.slots()
    }

    /// Adds a stream whose ID is new.
    #[inline(never)] // keeps a copy of the stream out of the frame of its caller
    pub(super) fn insert(&mut self, stream: Stream) -> Result<Slot, OutOfMemory> {
        let id = stream.id;
        let slot = self.slab.insert(stream)?;
        if let Err(error) = self.map.insert(id.as_u64(), slot) {
            self.slab.remove(slot);
            return Err(error);
        }
        self.last = Some((id, slot));
        Ok(slot)
    }

    /// Removes a stream that is in no queue.
    pub(super) fn remove(&mut self, slot: Slot) {
        if let Some(removed) = self.slab.get(slot).map(|stream| stream.id) {
            self.slab.remove(slot);
            self.map.remove(removed.as_u64());
            self.last = self.last.filter(|(id, _)| *id != removed);
        }
    }
}

#[cfg(test)]
mod tests {
    use quicket_wire::{Dir, Side};

    use super::*;

    #[test]
    fn a_removed_stream_is_not_found_even_if_it_was_found_last() {
        let mut table = Table::new(3);
        let ids = [0, 1].map(|index| StreamId::new(Side::Client, Dir::Bidi, index));
        let slots = ids.map(|id| table.insert(Stream::new(id, None, None)).unwrap());
        assert_eq!(ids.map(|id| table.find(id)), slots.map(Some));
        table.remove(slots[1]);
        assert_eq!(ids.map(|id| table.find(id)), [Some(slots[0]), None]);
    }
}
