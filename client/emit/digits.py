"""Index arithmetic of redistributions, of which every emitted program has a copy."""


def _size(atom):
    return PROGRAM["atoms"][atom]["size"]


def _digit(layout, atom, cuts):
    """Where an atom's digit in `layout` lies in an array that is cut by `cuts`: dimension, stride there, size."""
    for dimension, of_dimension in enumerate(layout["dimensions"]):
        for cut, stride in of_dimension["cuts"]:
            if cut != atom:
                continue
            for other, below in cuts["dimensions"][dimension]["cuts"]:
                if below < stride:
                    stride //= _size(other)
            return dimension, stride, _size(atom)
    raise KeyError(atom)


def _factors(lengths, digits):
    """The lengths of an array's dimensions, cut at the digits; and which of the factors each digit is."""
    factors, places, owners = [], {}, []
    for dimension, length in enumerate(lengths):
        numbers = [n for n, digit in enumerate(digits) if digit[0] == dimension]
        for number in sorted(numbers, key=lambda n: -digits[n][1]):
            _, stride, size = digits[number]
            factors += [length // (stride * size), size]
            owners += [dimension, None]
            places[number] = len(factors) - 1
            length = stride
        factors.append(length)
        owners.append(dimension)
    return factors, [places[n] for n in range(len(digits))], owners
