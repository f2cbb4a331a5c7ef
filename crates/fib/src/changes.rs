//! Which parts of a table have changed since its mirror image was last brought in line.

/// So many parts are worth naming; beyond that it is quicker to copy everything.
const MOST: usize = 1 << 16;

/// The numbers of the parts (chunks, nodes) that changed, or "everything".
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// First and last part of each stretch.
    stretches: Vec<(u32, u32)>,
    everything: bool,
}

impl Changes {
    /// Parts `first` to `last` changed.
    #[inline]
    pub(crate) fn note(&mut self, first: u32, last: u32) {
        if self.everything {
            return;
        }
        if self.stretches.len() == MOST {
            self.note_everything();
            return;
        }
        self.stretches.push((first, last));
    }

    /// All parts changed.
    pub(crate) fn note_everything(&mut self) {
        self.everything = true;
        self.stretches.clear();
    }

    /// Whether all parts changed. Then the stretches say nothing.
    pub(crate) fn is_everything(&self) -> bool {
        self.everything
    }

    /// The parts that changed; some may come twice.
    pub(crate) fn stretches(&self) -> &[(u32, u32)] {
        &self.stretches
    }

    /// The mirror image is in line.
    pub(crate) fn clear(&mut self) {
        self.everything = false;
        self.stretches.clear();
    }
}
