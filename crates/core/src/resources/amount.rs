//! One amount: the grammar of Kubernetes quantities, and arithmetic without rounding.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// One unit, in billionths.
const UNIT: u128 = 1_000_000_000;
/// The most that a quantity can say. More is read as this, as Kubernetes does.
const MOST: u128 = (i64::MAX as u128) * UNIT;
/// More digits than these are refused; they could not be computed with exactly.
const MOST_DIGITS: usize = 38;
const MOST_DECIMALS: usize = 18;

const DECIMAL_SUFFIXES: [(i32, &str); 10] =
    [(-9, "n"), (-6, "u"), (-3, "m"), (0, ""), (3, "k"), (6, "M"), (9, "G"), (12, "T"), (15, "P"), (18, "E")];
const BINARY_SUFFIXES: [(u32, &str); 6] =
    [(10, "Ki"), (20, "Mi"), (30, "Gi"), (40, "Ti"), (50, "Pi"), (60, "Ei")];

/// An amount of something, never negative. Two are equal when they are as much, however they were written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Amount {
    billionths: u128,
    notation: Notation,
}

/// How an amount is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Notation {
    /// `1500m`, `100k`.
    #[default]
    Decimal,
    /// `123Mi`.
    Binary,
    /// `129e6`.
    Exponent,
}

/// Why a text is not an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseAmountError {
    /// It does not begin with a number.
    #[error("a quantity begins with a number, such as 500m, 2 or 1Gi")]
    NoNumber,
    /// It is less than nothing.
    #[error("a quantity of a resource cannot be negative")]
    Negative,
    /// The suffix is not one.
    #[error("the suffix of a quantity is one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or e and a number")]
    UnknownSuffix,
    /// The number has more digits than can be computed with.
    #[error("a quantity has at most {MOST_DIGITS} digits, {MOST_DECIMALS} of them after the point")]
    TooManyDigits,
}

impl Amount {
    /// So many whole units.
    pub fn units(count: u64) -> Self {
        Self { billionths: u128::from(count) * UNIT, notation: Notation::Decimal }
    }

    /// How many billionths of a unit.
    pub fn billionths(self) -> u128 {
        self.billionths
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.billionths == 0
    }

    /// Both together.
    #[must_use]
    pub fn saturating_add(self, other: Self) -> Self {
        let notation = if self.is_zero() { other.notation } else { self.notation };
        Self { billionths: self.billionths.saturating_add(other.billionths), notation }
    }

    /// What is left without the other, or nothing.
    #[must_use]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self { billionths: self.billionths.saturating_sub(other.billionths), ..self }
    }

    /// So many hundredths of it, at most all of it.
    #[must_use]
    pub fn percent(self, percent: u8) -> Self {
        let percent = u128::from(percent.min(100));
        let (hundreds, rest) = (self.billionths / 100, self.billionths % 100);
        Self { billionths: hundreds * percent + rest * percent / 100, ..self }
    }

    /// Without what is less than a unit.
    #[must_use]
    pub fn whole_units(self) -> Self {
        Self { billionths: self.billionths - self.billionths % UNIT, ..self }
    }

    /// Without what is less than a thousandth of a unit.
    #[must_use]
    pub fn whole_thousandths(self) -> Self {
        Self { billionths: self.billionths - self.billionths % (UNIT / 1000), ..self }
    }

    /// How far apart the two are, in thousandths of the larger one.
    pub fn change_from(self, previous: Self) -> u32 {
        let difference = self.billionths.abs_diff(previous.billionths);
        let larger = self.billionths.max(previous.billionths).max(1);
        let thousandths = difference.saturating_mul(1000) / larger;
        u32::try_from(thousandths).unwrap_or(1000)
    }
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.billionths == other.billionths
    }
}

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> Ordering {
        self.billionths.cmp(&other.billionths)
    }
}

impl Hash for Amount {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.billionths.hash(state);
    }
}

impl FromStr for Amount {
    type Err = ParseAmountError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with('-') {
            return Err(ParseAmountError::Negative);
        }
        let text = text.strip_prefix('+').unwrap_or(text);
        let end = text.find(|next: char| !next.is_ascii_digit() && next != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let number = Number::read(number)?;
        let unit = Unit::read(suffix).ok_or(ParseAmountError::UnknownSuffix)?;
        let (billionths, notation) = match unit {
            Unit::Decimal(exponent) => (number.times_power_of_ten(exponent), Notation::Decimal),
            Unit::Exponent(exponent) => (number.times_power_of_ten(exponent), Notation::Exponent),
            Unit::Binary(shift) => (number.times_power_of_two(shift), Notation::Binary),
        };
        Ok(Self { billionths: billionths.min(MOST), notation })
    }
}

/// A decimal number: its digits, and how many of them are after the point.
struct Number {
    digits: u128,
    decimals: u32,
}

impl Number {
    fn read(text: &str) -> Result<Self, ParseAmountError> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
        if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
            return Err(ParseAmountError::NoNumber);
        }
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        if whole.len() + fraction.len() > MOST_DIGITS || fraction.len() > MOST_DECIMALS {
            return Err(ParseAmountError::TooManyDigits);
        }
        let digits = whole.bytes().chain(fraction.bytes());
        let digits = digits.fold(0, |sum, digit| sum * 10 + u128::from(digit - b'0'));
        let decimals = u32::try_from(fraction.len()).map_err(|_| ParseAmountError::TooManyDigits)?;
        Ok(Self { digits, decimals })
    }

    /// In billionths, rounded up: whoever asks for a little gets at least that.
    fn times_power_of_ten(&self, exponent: i32) -> u128 {
        let exponent = i64::from(exponent) + 9 - i64::from(self.decimals);
        let power = u32::try_from(exponent.unsigned_abs()).ok().and_then(|power| 10_u128.checked_pow(power));
        match power {
            Some(power) if exponent >= 0 => self.digits.saturating_mul(power),
            Some(power) => self.digits.div_ceil(power),
            None if exponent >= 0 => self.digits.saturating_mul(u128::MAX),
            None => self.digits.min(1),
        }
    }

    /// In billionths, rounded up. The steps are chosen so that none of them overflows.
    fn times_power_of_two(&self, shift: u32) -> u128 {
        let one = 10_u128.pow(self.decimals);
        let whole = (self.digits / one).saturating_mul((1 << shift) * UNIT);
        let fraction = (self.digits % one) << shift;
        whole.saturating_add(fraction / one * UNIT + (fraction % one * UNIT).div_ceil(one))
    }
}

enum Unit {
    Decimal(i32),
    Exponent(i32),
    Binary(u32),
}

impl Unit {
    fn read(suffix: &str) -> Option<Self> {
        let decimal = DECIMAL_SUFFIXES.iter().find(|(_, name)| *name == suffix);
        let binary = BINARY_SUFFIXES.iter().find(|(_, name)| *name == suffix);
        match (decimal, binary) {
            (Some((exponent, _)), _) => Some(Self::Decimal(*exponent)),
            (None, Some((shift, _))) => Some(Self::Binary(*shift)),
            (None, None) => Some(Self::Exponent(suffix.strip_prefix(['e', 'E'])?.parse().ok()?)),
        }
    }
}

impl fmt::Display for Amount {
    /// The canonical form: no fraction, and the largest suffix of the family that allows it. Small and
    /// fractional amounts are decimal even in the binary family.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let billionths = self.billionths.min(MOST);
        let units = billionths / UNIT;
        match self.notation {
            Notation::Binary if billionths.is_multiple_of(UNIT) && units >= 1024 => write_binary(to, units),
            Notation::Decimal | Notation::Binary => write_decimal(to, billionths),
            Notation::Exponent => write_exponent(to, billionths),
        }
    }
}

fn write_decimal(to: &mut fmt::Formatter<'_>, billionths: u128) -> fmt::Result {
    let (number, exponent) = shortest(billionths);
    let suffix = DECIMAL_SUFFIXES.iter().find(|(power, _)| *power == exponent).map_or("", |(_, name)| name);
    write!(to, "{number}{suffix}")
}

fn write_exponent(to: &mut fmt::Formatter<'_>, billionths: u128) -> fmt::Result {
    match shortest(billionths) {
        (number, 0) => write!(to, "{number}"),
        (number, exponent) => write!(to, "{number}e{exponent}"),
    }
}

fn write_binary(to: &mut fmt::Formatter<'_>, units: u128) -> fmt::Result {
    let fits = |(shift, _): &&(u32, &str)| units.is_multiple_of(1 << shift);
    let (shift, suffix) = BINARY_SUFFIXES.iter().rev().find(fits).unwrap_or(&(0, ""));
    write!(to, "{}{suffix}", units >> shift)
}

/// The number with all factors of a thousand taken out, and the power of ten that they make.
fn shortest(billionths: u128) -> (u128, i32) {
    let (mut number, mut exponent) = (billionths, -9);
    if number == 0 {
        return (0, 0);
    }
    while number.is_multiple_of(1000) {
        number /= 1000;
        exponent += 3;
    }
    (number, exponent)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Amount, ParseAmountError, UNIT};

    fn amount(text: &str) -> Amount {
        text.parse().unwrap()
    }

    #[test]
    fn amounts_print_as_kubernetes_prints_them() {
        let vectors = [
            ("1908m", "1908m"),
            ("35913494528", "35913494528"),
            ("2664000000", "2664M"),
            ("1.5Gi", "1536Mi"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("1E", "1E"),
            ("100k", "100k"),
            ("0.1", "100m"),
            ("1.5", "1500m"),
            ("128974848", "128974848"),
            ("129e6", "129e6"),
            ("129M", "129M"),
            ("123Mi", "123Mi"),
            ("1024Ki", "1Mi"),
            ("1000Ki", "1000Ki"),
            ("0.5Ki", "512"),
            ("0.25Ki", "256"),
            ("1.0001Ki", "1024102400u"),
            ("0", "0"),
            ("0Gi", "0"),
            ("000.500", "500m"),
            (".5", "500m"),
            ("5.", "5"),
            ("+5", "5"),
            ("0.1n", "1n"),
            ("1e-12", "1e-9"),
            ("100e-1", "10"),
            ("10000000000n", "10"),
            ("8Ei", "9223372036854775807"),
            ("1e300", "9223372036854775807"),
            ("0e300", "0"),
            ("1e-300", "1e-9"),
            ("12.123456789012345678Ei", "9223372036854775807"),
        ];
        for (text, canonical) in vectors {
            assert_eq!(amount(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn amounts_are_equal_when_they_are_as_much() {
        assert_eq!(amount("1"), amount("1000m"));
        assert_eq!(amount("1Ki"), amount("1024"));
        assert!(amount("1G") < amount("1Gi"));
    }

    #[test]
    fn what_is_not_an_amount_is_refused_with_the_reason() {
        for text in ["", "Gi", ".", "+", " 1", "1..2", "1.2.3", "true"] {
            assert_eq!(text.parse::<Amount>(), Err(ParseAmountError::NoNumber), "{text}");
        }
        for text in ["1K", "1ki", "1 Gi", "1e", "1e1.5", "1mm", "1e99999999999"] {
            assert_eq!(text.parse::<Amount>(), Err(ParseAmountError::UnknownSuffix), "{text}");
        }
        assert_eq!("-1".parse::<Amount>(), Err(ParseAmountError::Negative));
        assert_eq!("9".repeat(39).parse::<Amount>(), Err(ParseAmountError::TooManyDigits));
    }

    #[test]
    fn a_sum_is_written_like_its_first_part_that_is_something() {
        assert_eq!(amount("1Gi").saturating_add(amount("1024")).to_string(), "1048577Ki");
        assert_eq!(Amount::default().saturating_add(amount("2Gi")).to_string(), "2Gi");
    }

    fn texts() -> impl Strategy<Value = String> {
        let suffix = proptest::sample::select(vec!["", "n", "u", "m", "k", "M", "G", "Ki", "Mi", "Gi", "e3"]);
        (0_u64..=u64::from(u32::MAX), suffix).prop_map(|(number, suffix)| format!("{number}{suffix}"))
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back_as_the_same(text in texts()) {
            let printed = amount(&text).to_string();
            prop_assert_eq!(amount(&printed), amount(&text));
            prop_assert_eq!(amount(&printed).to_string(), printed);
        }

        #[test]
        fn what_is_added_can_be_taken_away_again(left in texts(), right in texts()) {
            let sum = amount(&left).saturating_add(amount(&right));
            prop_assert_eq!(sum.saturating_sub(amount(&right)), amount(&left));
            prop_assert_eq!(sum, amount(&right).saturating_add(amount(&left)));
            prop_assert!(amount(&left).saturating_sub(sum).is_zero());
        }

        #[test]
        fn a_share_is_never_more_than_its_part(text in texts(), percent in 0_u8..=120) {
            let (whole, share) = (amount(&text), amount(&text).percent(percent));
            prop_assert!(share <= whole);
            prop_assert!(share.billionths * 100 <= whole.billionths * u128::from(percent));
            prop_assert!(share.whole_units() <= share && share.whole_units().billionths.is_multiple_of(UNIT));
        }

        #[test]
        fn no_text_makes_the_parser_fall_over(text in "[-+0-9.a-zA-Z]{0,48}") {
            let _ = text.parse::<Amount>();
        }
    }
}
