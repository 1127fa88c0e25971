//! Attributes of netlink messages, as netfilter writes them: numbers are in network order.

/// The bits of an attribute's type that tell something else.
const FLAGS: u16 = 0xc000;
/// It holds other attributes.
const NESTED: u16 = 0x8000;
const HEADER: usize = 4;

/// Attributes to send.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes(Vec<u8>);

impl Attributes {
    pub(super) fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(HEADER + value.len()).unwrap_or(u16::MAX);
        self.0.extend(length.to_ne_bytes());
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(super) fn text(self, kind: u16, value: &str) -> Self {
        self.bytes(kind, &[value.as_bytes(), &[0]].concat())
    }

    pub(super) fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    pub(super) fn nest(self, kind: u16, inner: &Self) -> Self {
        self.bytes(NESTED | kind, &inner.0)
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// The attributes in these bytes, as far as they can be read.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
        let kind = u16::from_ne_bytes(*bytes.get(2..)?.first_chunk()?);
        let value = bytes.get(HEADER..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind & !FLAGS, value))
    })
}

/// The value of one of them.
pub(super) fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

pub(super) fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

pub(super) fn text(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value.strip_suffix(&[0])?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_they_are_written() {
        let inner = Attributes::default().number(1, 7);
        let bytes = Attributes::default().text(2, "ferro").nest(3, &inner).into_bytes();
        assert_eq!(attribute(&bytes, 2).and_then(text), Some("ferro"));
        let nested = attribute(&bytes, 3).unwrap();
        assert_eq!(attribute(nested, 1).and_then(number), Some(7));
        assert_eq!(attribute(&bytes, 4), None);
    }

    #[test]
    fn what_is_cut_off_or_lies_about_its_length_is_no_attribute() {
        let bytes = Attributes::default().number(1, 7).into_bytes();
        for length in 0..bytes.len() {
            assert_eq!(attributes(&bytes[..length]).count(), 0);
        }
        assert_eq!(attributes(&[0; 8]).count(), 0);
        assert_eq!(attributes(&[3, 0, 1, 0]).count(), 0);
    }
}
