//! Kubernetes' resource quantities: exact numbers with the way they were written (specs/volcano.md rests on them).
//! Must not know what is counted.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::str::FromStr;

use thiserror::Error;

const NANOS: i128 = 1_000_000_000;
/// Kubernetes keeps nothing beyond ±(2^63 − 1).
const LIMIT: i128 = i64::MAX as i128 * NANOS;

/// An amount, exact to a billionth; finer parts are rounded away from zero, as Kubernetes does.
/// Ordered and equal by amount alone: `1` equals `1000m`.
#[derive(Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    form: Form,
}

/// How an amount is written. A sum is written as its first operand that is not zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Form {
    /// `100m`, `4`, `2G`.
    #[default]
    Decimal,
    /// `512Mi`.
    Binary,
    /// `1e3`.
    Exponent,
}

/// The text is no quantity.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{0:?} is no quantity (like 500m, 4, 1.5Gi)")]
pub struct QuantityError(pub String);

impl Quantity {
    /// Nothing.
    pub const ZERO: Quantity = Quantity { nanos: 0, form: Form::Decimal };

    /// Whole units.
    pub fn whole(n: i64) -> Self {
        Self { nanos: i128::from(n) * NANOS, form: Form::Decimal }
    }

    /// Billionths.
    pub fn from_nanos(nanos: i128) -> Self {
        Self { nanos: nanos.clamp(-LIMIT, LIMIT), form: Form::Decimal }
    }

    /// The amount in billionths.
    pub fn nanos(self) -> i128 {
        self.nanos
    }

    /// The amount in thousandths, rounded up.
    pub fn millis_up(self) -> i128 {
        -(-self.nanos).div_euclid(1_000_000)
    }

    /// The amount in whole units, rounded up.
    pub fn units_up(self) -> i128 {
        -(-self.nanos).div_euclid(NANOS)
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// `n` times as much.
    pub fn times(self, n: i64) -> Self {
        self.with(self.nanos.saturating_mul(i128::from(n)))
    }

    /// The same way of writing, another amount in billionths.
    pub fn with(self, nanos: i128) -> Self {
        Self { nanos: nanos.clamp(-LIMIT, LIMIT), form: self.form }
    }

    fn parse(text: &str) -> Option<Self> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let number_end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
        let (number, suffix) = unsigned.split_at(number_end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (form, binary, power) = suffix_of(suffix)?;
        let digits: String = [whole, fraction].concat();
        let digits = digits.trim_start_matches('0');
        let power = power - i32::try_from(fraction.len()).ok()?;
        let magnitude = amount(digits, power, binary);
        let nanos = if text.starts_with('-') { -magnitude } else { magnitude };
        Some(Self { nanos, form })
    }
}

/// `digits` × 10^`power` × `binary` in billionths, rounded away from zero and capped.
fn amount(digits: &str, power: i32, binary: i128) -> i128 {
    if digits.is_empty() {
        return 0;
    }
    let power = power + 9;
    // 10^20 whole units are beyond the limit whatever follows.
    if i32::try_from(digits.len()).unwrap_or(i32::MAX).saturating_add(power) > 29 {
        return LIMIT;
    }
    // Digits so deep that they cannot reach a billionth of 2^60 only round up.
    let depth = usize::try_from(-power).unwrap_or(0);
    if depth > digits.len() + 20 {
        return 1;
    }
    // More than 30 digits can only be a long tail behind the point: cut it, and remember that it was there.
    let kept = &digits[..digits.len().min(30)];
    let power = power + i32::try_from(digits.len() - kept.len()).unwrap_or(0);
    let tail = digits[kept.len()..].bytes().any(|b| b != b'0');
    let Ok(mantissa) = kept.parse::<i128>() else { return LIMIT };
    if power >= 0 {
        let Some(scaled) = 10_i128.checked_pow(power.unsigned_abs()).and_then(|p| mantissa.checked_mul(p)) else {
            return LIMIT;
        };
        return scaled.saturating_mul(binary).saturating_add(i128::from(tail)).min(LIMIT);
    }
    let Some(divisor) = 10_i128.checked_pow(power.unsigned_abs()) else { return 1 };
    // Divide first where the product would not fit; the remainder is scaled by itself.
    let (quotient, rest) = (mantissa / divisor, mantissa % divisor);
    let (part, left) = match rest.checked_mul(binary) {
        Some(product) => (product / divisor, product % divisor != 0),
        None => (rest / (divisor / binary), true),
    };
    quotient.saturating_mul(binary).saturating_add(part).saturating_add(i128::from(left || tail)).min(LIMIT)
}

fn suffix_of(suffix: &str) -> Option<(Form, i128, i32)> {
    let decimal = |power| Some((Form::Decimal, 1, power));
    let binary = |shift: u32| Some((Form::Binary, 1_i128 << shift, 0));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
            if digits.is_empty() || digits.len() > 6 || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            Some((Form::Exponent, 1, exponent.parse().ok()?))
        }
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Quantity::parse(text).ok_or_else(|| QuantityError(text.chars().take(40).collect()))
    }
}

impl fmt::Display for Quantity {
    /// Kubernetes' canonical text: no fraction, the largest suffix that loses nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.form == Form::Binary && self.nanos % NANOS == 0 && self.nanos.abs() >= 1024 * NANOS {
            let (mut n, mut step) = (self.nanos / NANOS, 0);
            while n % 1024 == 0 && step < 6 {
                n /= 1024;
                step += 1;
            }
            return write!(f, "{n}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][step]);
        }
        let (mut n, mut step) = (self.nanos, 0);
        while n % 1000 == 0 && step < 9 {
            n /= 1000;
            step += 1;
        }
        if self.form == Form::Exponent {
            let exponent = (i32::try_from(step).unwrap_or(0) - 3) * 3;
            return if exponent == 0 { write!(f, "{n}") } else { write!(f, "{n}e{exponent}") };
        }
        write!(f, "{n}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][step])
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}
impl Eq for Quantity {}
impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Add for Quantity {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let form = if self.is_zero() { other } else { self };
        form.with(self.nanos + other.nanos)
    }
}
impl Sub for Quantity {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        let form = if self.is_zero() { other } else { self };
        form.with(self.nanos - other.nanos)
    }
}
impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}
impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        text.parse().unwrap()
    }

    #[test]
    fn texts_mean_what_kubernetes_means() {
        for (text, nanos) in [
            ("0", 0),
            ("1", NANOS),
            ("100m", NANOS / 10),
            ("0.1", NANOS / 10),
            (".5", NANOS / 2),
            ("5.", 5 * NANOS),
            ("-1", -NANOS),
            ("+2k", 2000 * NANOS),
            ("1Ki", 1024 * NANOS),
            ("1.5Gi", 3 * 512 * 1024 * 1024 * NANOS),
            ("1e3", 1000 * NANOS),
            ("1E3", 1000 * NANOS),
            ("1E", NANOS * 1_000_000_000_000_000_000),
            ("1n", 1),
            ("0.1n", 1),
            ("-0.1n", -1),
            ("0.0000000001Ki", 103),
            ("100Ei", LIMIT),
            ("1e400", LIMIT),
            ("1e-400", 1),
            ("0e400", 0),
        ] {
            assert_eq!(q(text).nanos(), nanos, "{text}");
        }
        for text in ["", "x", "1.2.3", "1x", "1e", "-", ".", "1 Gi", "Gi", "1Kim", "--1", "1e1.5"] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }

    #[test]
    fn texts_are_written_canonically() {
        for (text, canonical) in [
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("1024Mi", "1Gi"),
            ("1536Mi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("1000k", "1M"),
            ("1e3", "1e3"),
            ("1000e3", "1e6"),
            ("512", "512"),
            ("0.5Ki", "512"),
            ("-1500m", "-1500m"),
            ("0Gi", "0"),
        ] {
            assert_eq!(q(text).to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn a_sum_is_written_like_its_first_operand_that_is_not_zero() {
        assert_eq!((q("1Gi") + q("1024")).to_string(), "1048577Ki");
        assert_eq!((Quantity::ZERO + q("512Mi")).to_string(), "512Mi");
        assert_eq!((q("1") - q("100m")).to_string(), "900m");
        assert_eq!(q("1"), q("1000m"));
        assert_eq!(q("300m").times(4).to_string(), "1200m");
        assert_eq!((q("1001n").millis_up(), q("-1001n").millis_up(), q("1001m").units_up()), (1, 0, 2));
    }
}
