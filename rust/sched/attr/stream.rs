// SPDX-License-Identifier: GPL-2.0-only

//! Offset streams of block requests.

/// Flag of stream numbers that are cgroup ids, so that no cgroup equals a hint.
const CGROUP: u64 = 1 << 63;

/// Source of the offset streams of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Write stream or write hint of the request.
    Hint,
    /// Cgroup of the submitter.
    Cgroup,
    /// No streams.
    None,
}

impl Stream {
    const WORDS: [(&'static str, Self); 3] = [
        ("hint", Self::Hint),
        ("cgroup", Self::Cgroup),
        ("none", Self::None),
    ];

    /// Returns the source named `word`.
    pub fn from_word(word: &str) -> Option<Self> {
        let found = Self::WORDS.iter().find(|(known, _)| *known == word);
        found.map(|(_, stream)| *stream)
    }

    /// Returns the name of the source.
    pub fn word(self) -> &'static str {
        let found = Self::WORDS.iter().find(|(_, stream)| *stream == self);
        found.map_or("", |(word, _)| word)
    }

    /// Returns the stream of a request with `hint` (0: none) from a submitter in `cgroup`. Kernel
    /// threads have no cgroup of their own; their requests use the hint.
    #[inline]
    pub fn of(self, hint: u64, cgroup: impl FnOnce() -> Option<u64>) -> u64 {
        match self {
            Self::None => 0,
            Self::Hint => hint,
            Self::Cgroup => cgroup().map_or(hint, |id| CGROUP | id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        for (word, stream) in Stream::WORDS {
            assert_eq!(Stream::from_word(word), Some(stream));
            assert_eq!(stream.word(), word);
        }
        assert_eq!(Stream::from_word("Hint"), None);
        assert_eq!(Stream::from_word(""), None);
    }

    #[test]
    fn numbers() {
        let of = |stream: Stream, hint, cgroup| stream.of(hint, || cgroup);
        assert_eq!(of(Stream::None, 258, Some(7)), 0);
        assert_eq!(of(Stream::Hint, 258, Some(7)), 258);
        // Reads have no hint.
        assert_eq!(of(Stream::Hint, 0, Some(7)), 0);
        assert_ne!(of(Stream::Cgroup, 0, Some(7)), 0);
        assert_eq!(
            of(Stream::Cgroup, 0, Some(7)),
            of(Stream::Cgroup, 258, Some(7))
        );
        assert_ne!(
            of(Stream::Cgroup, 0, Some(7)),
            of(Stream::Cgroup, 0, Some(8))
        );
        // A cgroup differs from a hint with the same number.
        assert_ne!(
            of(Stream::Cgroup, 0, Some(258)),
            of(Stream::Hint, 258, None)
        );
        // Writeback of different cgroups is not one stream.
        assert_eq!(of(Stream::Cgroup, 258, None), 258);
        assert_eq!(of(Stream::Cgroup, 0, None), 0);
    }
}
