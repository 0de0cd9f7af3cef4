//! Labels of a program that is being written: for both assemblers.

/// A place to jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label(usize);

/// Where the labels are, and who jumps there.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    /// The instruction of each, once it is known.
    places: Vec<Option<usize>>,
    jumps: Vec<(usize, Label)>,
}

impl Labels {
    /// A place that [`Self::place`] decides.
    pub(crate) fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// `label` is before instruction `at`.
    pub(crate) fn place(&mut self, label: Label, at: usize) {
        if let Some(place) = self.places.get_mut(label.0) {
            *place = Some(at);
        }
    }

    /// Instruction `from` jumps to `label`.
    pub(crate) fn jump(&mut self, from: usize, label: Label) {
        self.jumps.push((from, label));
    }

    /// Each instruction that jumps, and over how many it does; none for a label that was not placed.
    pub(crate) fn distances(&self) -> impl Iterator<Item = Option<(usize, i64)>> {
        self.jumps.iter().map(|&(from, label)| {
            let to = i64::try_from((*self.places.get(label.0)?)?).ok()?;
            Some((from, to - i64::try_from(from).ok()? - 1))
        })
    }
}
