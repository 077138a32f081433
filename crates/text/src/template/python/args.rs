//! Arguments of calls, by position and by name.

use minijinja::value::Kwargs;
use minijinja::{Error, Value};

use super::super::outcome::invalid;
use super::Kind;

/// The arguments of one call.
#[derive(Debug, Default)]
pub(in super::super) struct Args {
    pub(in super::super) positional: Vec<Value>,
    pub(in super::super) named: Vec<(String, Value)>,
}

impl Args {
    pub(in super::super) fn new(args: &[Value]) -> Result<Args, Error> {
        let (positional, named) = match args.split_last() {
            Some((last, rest)) if last.is_kwargs() => {
                let kwargs = Kwargs::try_from(last.clone())?;
                let named = kwargs.args().map(|name| Ok((name.to_owned(), kwargs.peek::<Value>(name)?)));
                (rest, named.collect::<Result<_, Error>>()?)
            }
            _ => (args, Vec::new()),
        };
        Ok(Args { positional: positional.to_vec(), named })
    }

    /// The first argument by position, which a filter or test is applied to.
    pub(in super::super) fn operand(&mut self) -> Result<Value, Error> {
        if self.positional.is_empty() {
            return Err(invalid("an argument is missing"));
        }
        Ok(self.positional.remove(0))
    }

    /// The values of parameters with these names, of which the first `required` must be given.
    pub(in super::super) fn bind<const N: usize>(
        self,
        names: [&str; N],
        required: usize,
    ) -> Result<[Option<Value>; N], Error> {
        if self.positional.len() > N {
            return Err(invalid(format!("at most {N} arguments are expected, not {}", self.positional.len())));
        }
        let mut bound = [const { None }; N];
        for (place, value) in bound.iter_mut().zip(self.positional) {
            *place = Some(value);
        }
        for (name, value) in self.named {
            let index = names.iter().position(|known| *known == name);
            let place = index.and_then(|index| bound.get_mut(index));
            match place.ok_or_else(|| invalid(format!("there is no argument {name}")))? {
                place @ None => *place = Some(value),
                Some(_) => return Err(invalid(format!("the argument {name} is given twice"))),
            }
        }
        match bound.iter().take(required).position(Option::is_none) {
            Some(missing) => Err(invalid(format!("the argument {} is missing", names[missing]))),
            None => Ok(bound),
        }
    }

    /// The values of up to `N` parameters without names.
    pub(in super::super) fn unnamed<const N: usize>(self, required: usize) -> Result<[Option<Value>; N], Error> {
        if let Some((name, _)) = self.named.first() {
            return Err(invalid(format!("there is no argument {name}")));
        }
        if self.positional.len() < required {
            return Err(invalid(format!("at least {required} arguments are expected")));
        }
        self.bind([""; N], 0)
    }
}

/// An integer, as an index or a count.
pub(in super::super) fn integer(value: &Value) -> Result<i64, Error> {
    match Kind::of(value) {
        Kind::Bool => Ok(i64::from(value.is_true())),
        Kind::Int => i64::try_from(value.clone()).map_err(|_| invalid("an integer is too large")),
        kind => Err(invalid(format!("an integer is expected, not {}", kind.name()))),
    }
}

/// A string.
pub(in super::super) fn text_of(value: &Value) -> Result<&str, Error> {
    value.as_str().ok_or_else(|| invalid(format!("a string is expected, not {}", Kind::of(value).name())))
}
