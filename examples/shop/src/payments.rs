//! Charging a card: the receipt follows from key, amount and the shop's secret, so that any replica, asked any number
//! of times, gives the same one and charges once.

use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::goods::Cents;
use crate::orders::Receipt;

/// The most that is charged at once.
const LIMIT: Cents = 100_000_000;

/// What is to be charged.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Charge {
    pub(crate) card: String,
    pub(crate) amount: Cents,
}

/// Why a card is not charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Declined {
    #[error("this is not the number of a card; look for a wrong digit")]
    NoCard,
    #[error("a card is charged 1 to {LIMIT} cents at once; order less")]
    Amount,
}

/// Charges a card for an order.
pub(crate) fn charge(secret: &hmac::Key, key: &str, charge: &Charge) -> Result<Receipt, Declined> {
    if !is_card(&charge.card) {
        return Err(Declined::NoCard);
    }
    if !(1..=LIMIT).contains(&charge.amount) {
        return Err(Declined::Amount);
    }
    let amount = charge.amount;
    let card = charge.card[charge.card.len() - 4..].to_owned();
    let tag = hmac::sign(secret, format!("{key} {amount} {card}").as_bytes());
    let number =
        tag.as_ref().iter().take(8).fold(String::new(), |number, byte| format!("{number}{byte:02x}"));
    Ok(Receipt { key: key.to_owned(), amount, card, number })
}

/// Digits of the usual length whose last one fits the others (ISO/IEC 7812).
fn is_card(number: &str) -> bool {
    let digits: Option<Vec<u32>> = number.chars().map(|c| c.to_digit(10)).collect();
    let weigh = |(place, digit): (usize, &u32)| match (place % 2, digit * 2) {
        (0, _) => *digit,
        (_, twice) => twice / 10 + twice % 10,
    };
    digits.is_some_and(|digits| {
        (12..=19).contains(&digits.len()) && digits.iter().rev().enumerate().map(weigh).sum::<u32>() % 10 == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: &str = "4000000000000002";

    fn receipt(secret: &str, key: &str, amount: Cents) -> Receipt {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        charge(&secret, key, &Charge { card: CARD.into(), amount }).unwrap()
    }

    #[test]
    fn a_charge_that_is_repeated_anywhere_is_the_same_charge() {
        assert_eq!(receipt("s", "k", 100), receipt("s", "k", 100));
        assert_eq!(receipt("s", "k", 100).card, "0002");
        let others = [receipt("s", "other", 100), receipt("s", "k", 101), receipt("other", "k", 100)];
        assert!(others.iter().all(|other| other.number != receipt("s", "k", 100).number));
    }

    #[test]
    fn a_wrong_digit_is_found() {
        assert!(
            is_card(CARD) && !is_card("4000000000000003") && !is_card("0000") && !is_card("40000000000000ä")
        );
    }

    #[test]
    fn nothing_is_charged_for_nothing() {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, b"s");
        let refusal = charge(&secret, "k", &Charge { card: CARD.into(), amount: 0 });
        assert_eq!(refusal, Err(Declined::Amount));
    }
}
