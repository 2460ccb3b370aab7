//! Messages of protocol buffers, as far as a task needs them: texts, bytes and numbers. No I/O, no
//! clock.

/// The kinds of fields that are written: a number, and bytes with their length.
const NUMBER: u8 = 0;
const BYTES: u8 = 2;
/// Bytes of the longest number.
const NUMBER_MAX: u32 = 10;

/// A message that is being written. Empty values are left out, as usual.
#[derive(Debug, Default)]
pub(super) struct FieldWriter(Vec<u8>);

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValue<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoMessage;

impl FieldWriter {
    pub(super) fn text(self, field: u8, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }

    pub(super) fn bytes(mut self, field: u8, bytes: &[u8]) -> Self {
        if !bytes.is_empty() {
            self.0.push(field << 3 | BYTES);
            self.put(bytes.len() as u64);
            self.0.extend_from_slice(bytes);
        }
        self
    }

    #[cfg(test)]
    pub(super) fn number(mut self, field: u8, number: u64) -> Self {
        if number != 0 {
            self.0.push(field << 3 | NUMBER);
            self.put(number);
        }
        self
    }

    pub(super) fn done(self) -> Vec<u8> {
        self.0
    }

    fn put(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(u8::try_from(number & 0x7f).unwrap_or_default() | 0x80);
            number >>= 7;
        }
        self.0.push(u8::try_from(number).unwrap_or_default());
    }
}

/// The fields of a message, in their order.
pub(super) fn fields(mut message: &[u8]) -> Result<Vec<(u64, FieldValue<'_>)>, NoMessage> {
    let mut fields = Vec::new();
    while !message.is_empty() {
        let key = take_number(&mut message)?;
        let kind = u8::try_from(key & 7).map_err(|_| NoMessage)?;
        let value = match kind {
            NUMBER => FieldValue::Number(take_number(&mut message)?),
            BYTES => {
                let len = take_number(&mut message)?;
                FieldValue::Bytes(take(&mut message, len)?)
            }
            // Answers of a shim have no others.
            _ => return Err(NoMessage),
        };
        fields.push((key >> 3, value));
    }
    Ok(fields)
}

/// The number in a field; 0 if it is not there, as usual.
pub(super) fn number(fields: &[(u64, FieldValue<'_>)], field: u64) -> u64 {
    let find = |(at, value): &(u64, FieldValue<'_>)| match value {
        FieldValue::Number(number) if *at == field => Some(*number),
        _ => None,
    };
    fields.iter().rev().find_map(find).unwrap_or_default()
}

/// The bytes in a field; empty if they are not there, as usual.
pub(super) fn bytes<'a>(fields: &[(u64, FieldValue<'a>)], field: u64) -> &'a [u8] {
    let find = |(at, value): &(u64, FieldValue<'a>)| match value {
        FieldValue::Bytes(bytes) if *at == field => Some(*bytes),
        _ => None,
    };
    fields.iter().rev().find_map(find).unwrap_or_default()
}

fn take<'a>(message: &mut &'a [u8], len: u64) -> Result<&'a [u8], NoMessage> {
    let len = usize::try_from(len).map_err(|_| NoMessage)?;
    let (part, rest) = message.split_at_checked(len).ok_or(NoMessage)?;
    *message = rest;
    Ok(part)
}

fn take_number(message: &mut &[u8]) -> Result<u64, NoMessage> {
    let mut number = 0;
    for place in 0..NUMBER_MAX {
        let [byte] = take(message, 1)? else { return Err(NoMessage) };
        number |= u64::from(byte & 0x7f).checked_shl(7 * place).unwrap_or_default();
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(NoMessage)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_message_in_bytes() {
        let bytes =
            FieldWriter::default().text(1, "id").text(2, "").number(3, 300).number(4, 0).done();
        assert_eq!(bytes, [0x0a, 2, b'i', b'd', 0x18, 0xac, 2]);
        let read = fields(&bytes).unwrap();
        assert_eq!((super::bytes(&read, 1), number(&read, 3)), (&b"id"[..], 300));
        assert_eq!((super::bytes(&read, 2), number(&read, 9)), (&b""[..], 0));
    }

    #[test]
    fn what_is_not_one_is_refused() {
        for bad in
            [&[0x0a][..], &[0x0a, 9, 1], &[0x18], &[0x18, 0x80], &[0x0b], &[0x80; 11], &[0x09, 1]]
        {
            assert_eq!(fields(bad), Err(NoMessage), "{bad:?}");
        }
        // Eight and four bytes.
        assert!(fields(&[0x09, 1, 2, 3, 4, 5, 6, 7, 8]).is_err());
        assert!(fields(&[0x15, 1, 2, 3, 4]).is_err());
        // The last one of a repeated field counts.
        assert_eq!(number(&fields(&[0x18, 1, 0x18, 2]).unwrap(), 3), 2);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(message in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = fields(&message);
        }

        #[test]
        fn numbers_come_back(value in any::<u64>()) {
            let bytes = FieldWriter::default().number(3, value).done();
            prop_assert_eq!(number(&fields(&bytes).unwrap(), 3), value);
        }
    }
}
