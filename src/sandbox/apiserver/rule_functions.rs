//! What Kubernetes adds to CEL for rules, as far as it is exact here: functions of texts, lists, regular expressions,
//! addresses and quantities. Must not know rules or schemas.
//!
//! Not here, and hence said to be unsupported where a rule uses them: dates and durations, URLs, versions, formats.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, LazyLock};

use cel::extractors::This;
use cel::objects::Opaque;
use cel::{Context, Env, ExecutionError, Value, extensions};
use regex_lite::Regex;

use crate::api::Quantity;

/// Functions of the language itself and of those that are added, by their names.
pub(super) const NAMES: &[&str] = &[
    // The language's own.
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "string",
    "int",
    "uint",
    "double",
    "max",
    "min",
    // Texts.
    "charAt",
    "indexOf",
    "lastIndexOf",
    "lowerAscii",
    "upperAscii",
    "replace",
    "split",
    "substring",
    "trim",
    "join",
    // Lists.
    "isSorted",
    "sum",
    // Regular expressions.
    "find",
    "findAll",
    // Addresses.
    "isIP",
    "isCIDR",
    // Quantities.
    "quantity",
    "isQuantity",
    "isInteger",
    "asInteger",
    "asApproximateFloat",
    "sign",
    "add",
    "sub",
    "compareTo",
    "isGreaterThan",
    "isLessThan",
];

static LANGUAGE: LazyLock<Arc<Env>> = LazyLock::new(|| {
    let mut language = Env::stdlib();
    language.add_extension(extensions::strings).expect("nothing else is declared under these names");
    Arc::new(language)
});

/// A context that knows all functions and no variables.
pub(super) fn context<'a>() -> Context<'a, 'a> {
    let mut context = Context::with_env(LANGUAGE.clone());
    lists(&mut context)
        .and_then(|()| addresses(&mut context))
        .and_then(|()| quantities(&mut context))
        .expect("the language declares none of these names");
    context
}

type Declared = Result<(), cel::DeclarationError>;
type Answer = Result<Value, ExecutionError>;

fn wrong(function: &str, why: impl std::fmt::Display) -> ExecutionError {
    ExecutionError::function_error(function, why)
}

fn lists(context: &mut Context) -> Declared {
    context.add_function("isSorted", |This(list): This<Value>| -> Answer {
        let Value::List(list) = list else { return Err(wrong("isSorted", "is for lists")) };
        Ok(Value::Bool(list.windows(2).all(|pair| pair[0] <= pair[1])))
    })?;
    context.add_function("sum", |This(list): This<Value>| -> Answer {
        let Value::List(list) = list else { return Err(wrong("sum", "is for lists")) };
        let overflow = || wrong("sum", "integer overflow");
        let mut total = Value::Int(0);
        for one in list.iter() {
            total = match (&total, one) {
                (Value::Int(sum), Value::Int(one)) => Value::Int(sum.checked_add(*one).ok_or_else(overflow)?),
                (Value::Int(0), Value::UInt(one)) => Value::UInt(*one),
                (Value::UInt(sum), Value::UInt(one)) => Value::UInt(sum.checked_add(*one).ok_or_else(overflow)?),
                (Value::Int(0), Value::Float(one)) => Value::Float(*one),
                (Value::Float(sum), Value::Float(one)) => Value::Float(sum + one),
                _ => return Err(wrong("sum", "is for lists of numbers of one type")),
            };
        }
        Ok(total)
    })?;
    context.add_function("find", |This(text): This<Arc<String>>, pattern: Arc<String>| -> Answer {
        let pattern = Regex::new(&pattern).map_err(|e| wrong("find", e))?;
        Ok(Value::from(pattern.find(&text).map_or("", |found| found.as_str())))
    })?;
    context.add_function("findAll", |This(text): This<Arc<String>>, pattern: Arc<String>| -> Answer {
        let pattern = Regex::new(&pattern).map_err(|e| wrong("findAll", e))?;
        let all: Vec<Value> = pattern.find_iter(&text).map(|found| Value::from(found.as_str())).collect();
        Ok(Value::List(Arc::new(all)))
    })
}

/// An address as Kubernetes takes it: no zone, and no IPv4 address in the form of IPv6.
fn address(text: &str) -> Option<IpAddr> {
    let address: IpAddr = text.parse().ok()?;
    let mapped = matches!(address, IpAddr::V6(v6) if Ipv6Addr::to_ipv4_mapped(&v6).is_some());
    (!mapped).then_some(address)
}

fn addresses(context: &mut Context) -> Declared {
    context.add_function("isIP", |text: Arc<String>| address(&text).is_some())?;
    context.add_function("isCIDR", |text: Arc<String>| {
        let Some((start, bits)) = text.split_once('/') else { return false };
        let most = match address(start) {
            Some(IpAddr::V4(_)) => 32,
            Some(IpAddr::V6(_)) => 128,
            None => return false,
        };
        let plain = bits.bytes().all(|b| b.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
        plain && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
    })
}

/// A quantity inside a rule.
#[derive(Debug, PartialEq, Eq)]
struct Amount(Quantity);

impl Opaque for Amount {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }
}

fn amount(value: &Value) -> Result<Quantity, ExecutionError> {
    match value {
        Value::Opaque(opaque) => opaque.downcast_ref::<Amount>().map(|amount| amount.0),
        // `add` and `sub` take whole numbers too.
        Value::Int(number) => Some(Quantity::whole(*number)),
        _ => None,
    }
    .ok_or_else(|| wrong("quantity", "no such overload"))
}

fn opaque(quantity: Quantity) -> Value {
    Value::Opaque(Arc::new(Amount(quantity)))
}

/// Whole units, where it is whole.
fn whole(quantity: Quantity) -> Option<i64> {
    let units = i64::try_from(quantity.units_up()).ok()?;
    (Quantity::whole(units) == quantity).then_some(units)
}

fn quantities(context: &mut Context) -> Declared {
    context.add_function("quantity", |text: Arc<String>| -> Answer {
        text.parse().map(opaque).map_err(|e| wrong("quantity", e))
    })?;
    context.add_function("isQuantity", |text: Arc<String>| text.parse::<Quantity>().is_ok())?;
    context.add_function("isInteger", |This(one): This<Value>| -> Answer {
        Ok(Value::Bool(whole(amount(&one)?).is_some()))
    })?;
    context.add_function("asInteger", |This(one): This<Value>| -> Answer {
        whole(amount(&one)?).map(Value::Int).ok_or_else(|| wrong("asInteger", "cannot convert value to integer"))
    })?;
    context.add_function("asApproximateFloat", |This(one): This<Value>| -> Answer {
        Ok(Value::Float(amount(&one)?.nanos() as f64 / 1e9))
    })?;
    context.add_function("sign", |This(one): This<Value>| -> Answer {
        Ok(Value::Int(amount(&one)?.nanos().signum() as i64))
    })?;
    context.add_function("add", |This(one): This<Value>, other: Value| -> Answer {
        Ok(opaque(amount(&one)? + amount(&other)?))
    })?;
    context.add_function("sub", |This(one): This<Value>, other: Value| -> Answer {
        Ok(opaque(amount(&one)? - amount(&other)?))
    })?;
    context.add_function("compareTo", |This(one): This<Value>, other: Value| -> Answer {
        Ok(Value::Int(amount(&one)?.cmp(&amount(&other)?) as i64))
    })?;
    context.add_function("isGreaterThan", |This(one): This<Value>, other: Value| -> Answer {
        Ok(Value::Bool(amount(&one)? > amount(&other)?))
    })?;
    context.add_function("isLessThan", |This(one): This<Value>, other: Value| -> Answer {
        Ok(Value::Bool(amount(&one)? < amount(&other)?))
    })
}

#[cfg(test)]
mod tests {
    use cel::Program;

    use super::*;

    fn is(rule: &str) -> Value {
        Program::compile(rule).unwrap().execute(&context()).unwrap_or_else(|e| panic!("{rule}: {e}"))
    }

    #[test]
    fn what_kubernetes_adds_to_the_language_is_there() {
        for rule in [
            "'a,b'.split(',').size() == 2 && ' x '.trim() == 'x' && 'aB'.lowerAscii() == 'ab' && 'abc'.substring(1) == 'bc'",
            "['a', 'b'].join('-') == 'a-b' && 'abcb'.indexOf('b') == 1 && 'abcb'.lastIndexOf('b') == 3",
            "'abc'.replace('b', 'x') == 'axc' && 'abc'.charAt(1) == 'b' && 'ab'.upperAscii() == 'AB'",
            "[1, 2, 2].isSorted() && !['b', 'a'].isSorted() && [1, 2, 3].sum() == 6 && [0.5, 1.5].sum() == 2.0",
            "'a12b3'.find('[0-9]+') == '12' && 'a12b3'.findAll('[0-9]+') == ['12', '3'] && 'x'.find('y') == ''",
            "isIP('10.0.0.1') && isIP('::1') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%en0') && !isIP('1.2.3')",
            "isCIDR('10.0.0.0/8') && isCIDR('::/0') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0')",
            "isQuantity('1.5Gi') && !isQuantity('1.5Gb') && quantity('1Gi').isGreaterThan(quantity('1G'))",
            "quantity('50k').add(quantity('20k')) == quantity('70k') && quantity('50k').sub(20000) == quantity('30k')",
            "quantity('1').compareTo(quantity('1000m')) == 0 && quantity('-1').sign() == -1 && quantity('5').asInteger() == 5",
            "!quantity('50m').isInteger() && quantity('0.5').asApproximateFloat() == 0.5 && quantity('1').isLessThan(quantity('2'))",
        ] {
            assert_eq!(is(rule), Value::Bool(true), "{rule}");
        }
    }
}
