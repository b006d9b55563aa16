# cython: language_level=3, cdivision=True
"""The loop of message_loop.py in C: the same messages of the same records. message_loop.py says what they look like.

Bytes come from anybody. Each read is behind a comparison with the body's end. Lengths are below 2**31 and positions are
Py_ssize_t, so no sum overflows.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy

from zlib import crc32

cdef const char* UNIQ = b"\x10UNIQ_KEY"
cdef Py_ssize_t UNIQ_BYTES = 9
cdef const char* UNIQ_PROPERTY = b"UNIQ_KEY\x01"
cdef Py_ssize_t UNIQ_PROPERTY_BYTES = 9
cdef Py_ssize_t HEAD_BYTES = 48, BEHIND_BYTES = 16

cdef struct Output:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t room

cdef struct Body:
    const uint8_t* data
    Py_ssize_t size
    bint bad  # it was read beyond its end, or a number in it is too long


cdef inline uint8_t byte_at(Body* body, Py_ssize_t at) noexcept nogil:
    if 0 <= at < body.size:
        return body.data[at]
    body.bad = True
    return 0


cdef inline int64_t number_at(Body* body, Py_ssize_t* at, int most, int64_t least, int64_t greatest) noexcept nogil:
    """A zigzag number of `most` bytes at most, and between the two."""
    cdef uint64_t raw = 0, byte
    cdef int shift = 0, count
    cdef int64_t number
    for count in range(most):
        byte = byte_at(body, at[0])
        if body.bad:
            return 0
        at[0] += 1
        if shift == 63 and byte > 1:
            body.bad = True
            return 0
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            number = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
            if not least <= number <= greatest:
                body.bad = True
            return number
        shift += 7
    body.bad = True
    return 0


cdef inline int64_t varint_at(Body* body, Py_ssize_t* at) noexcept nogil:
    return number_at(body, at, 5, -<int64_t>2147483648, INT32_MAX)


cdef inline int64_t short_at(Body* body, Py_ssize_t* at) noexcept nogil:
    """A number that is not negative, of two bytes mostly."""
    cdef int64_t first = byte_at(body, at[0]), second
    if first < 0x80:
        at[0] += 1
        return first >> 1
    second = byte_at(body, at[0] + 1)
    if second < 0x80:
        at[0] += 2
        return (first & 0x7F | second << 7) >> 1
    return varint_at(body, at)


cdef inline bint is_alnum(const uint8_t* at, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t each
    for each in range(size):
        if not (c"0" <= at[each] <= c"9" or c"A" <= at[each] <= c"Z" or c"a" <= at[each] <= c"z"):
            return False
    return size > 0


cdef inline uint8_t* put(uint8_t* at, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(at, data, size)
    return at + size


cdef inline uint8_t* put32(uint8_t* at, uint32_t number) noexcept nogil:
    at[0] = <uint8_t>(number >> 24)
    at[1] = <uint8_t>(number >> 16)
    at[2] = <uint8_t>(number >> 8)
    at[3] = <uint8_t>number
    return at + 4


cdef inline uint8_t* put64(uint8_t* at, uint64_t number) noexcept nogil:
    return put32(put32(at, <uint32_t>(number >> 32)), <uint32_t>number)


cdef int reserve(Output* output, Py_ssize_t more) except -1:
    cdef Py_ssize_t room = output.room
    cdef uint8_t* grown
    if output.size + more <= room:
        return 0
    while room < output.size + more:
        room = 2 * room + 4096
    grown = <uint8_t*>realloc(output.data, room)
    if grown == NULL:
        raise MemoryError
    output.data, output.room = grown, room
    return 0


def write(
    bytes body not None, Py_ssize_t count, int64_t base_offset, int64_t base_ms, int64_t from_offset, rows, bounds, prepared,
    tuple fixed not None, dict tails not None, partition, read, list sizes not None, list offsets not None
):
    """As message_loop.py's."""
    cdef Body source
    cdef Output output
    cdef uint8_t* to
    cdef Py_ssize_t at = 0, start, end, after, nth, index, uniq_at, uniq_size, rest_at, text_size
    cdef Py_ssize_t value_at, value_size, size, waited = len(prepared), fixed_size
    cdef int64_t length, delta_ms, delta, number, offset, born_ms, place
    cdef int64_t high
    cdef uint32_t magic, crc
    cdef int32_t queue_id, store_flag
    cdef uint8_t headers
    cdef bytes stored, behind_body, properties, born, key, rest
    cdef tuple known
    cdef PyObject* found
    magic, queue_id, high, store_flag, stored, behind_body = fixed
    fixed_size = HEAD_BYTES + PyBytes_GET_SIZE(stored) + BEHIND_BYTES + PyBytes_GET_SIZE(behind_body) + 2
    source.data, source.size, source.bad = <const uint8_t*>PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), False
    output.data, output.size, output.room = NULL, 0, 0
    try:
        for nth in range(count):
            index = nth
            if rows is not None:
                index = rows[nth]
                at = bounds[index]
            start = at
            length = short_at(&source, &at)
            end = at + length
            if byte_at(&source, at + 1):
                at += 1
                delta_ms = number_at(&source, &at, 10, INT64_MIN, INT64_MAX)
            else:
                delta_ms = 0
                at += 2
            delta = byte_at(&source, at)
            if delta < 0x80:
                delta >>= 1
                at += 1
            else:
                delta = varint_at(&source, &at)
            key = None
            if byte_at(&source, at) == 1:
                at += 1
            else:
                number = varint_at(&source, &at)
                if number < 0 or source.bad or number > source.size - at:
                    raise ValueError(index, start)
                key = PyBytes_FromStringAndSize(<const char*>source.data + at, number)
                at += number
            number = byte_at(&source, at)
            if number & 1 and number < 0x80:
                at += 1
                number = 0
            else:
                number = varint_at(&source, &at)
            value_at, value_size = at, 0
            if number > 0:
                value_size = number
                at += number
            headers = byte_at(&source, at)
            if headers < 0x80:
                at += 1
            else:
                headers = varint_at(&source, &at) != 0
            if source.bad or not start < at <= end <= source.size:
                raise ValueError(index, start)
            uniq_at, uniq_size, rest_at = at, 0, at
            if headers and source.size - at > UNIQ_BYTES and memcmp(source.data + at, UNIQ, UNIQ_BYTES) == 0:
                if source.data[at + UNIQ_BYTES] < 0x80:
                    after = at + UNIQ_BYTES + 1 + (source.data[at + UNIQ_BYTES] >> 1)
                    if after <= end and is_alnum(source.data + at + UNIQ_BYTES + 1, after - at - UNIQ_BYTES - 1):
                        uniq_at, uniq_size = at + UNIQ_BYTES + 1, after - at - UNIQ_BYTES - 1
                        rest_at = after
            at = end
            offset = base_offset + delta
            if offset < from_offset:
                continue
            rest = PyBytes_FromStringAndSize(<const char*>source.data + rest_at, end - rest_at)
            found = PyDict_GetItem(tails, (rest, key, partition))
            if found != NULL:
                known = <tuple>found
            else:
                known = read(body, start, index, base_ms, partition, rest, uniq_size > 0)
            properties, born = known[0], known[3]
            text_size = PyBytes_GET_SIZE(properties)
            if uniq_size:
                text_size += UNIQ_PROPERTY_BYTES + uniq_size + 1
            if known[4] is not None:
                born_ms = known[4]
            else:
                if (delta_ms > 0 and base_ms > INT64_MAX - delta_ms) or (delta_ms < 0 and base_ms < INT64_MIN - delta_ms):
                    raise OverflowError(index)
                born_ms = base_ms + delta_ms
            size = fixed_size + PyBytes_GET_SIZE(born) + value_size + text_size
            if size > INT32_MAX:
                raise OverflowError(index)
            crc = crc32(PyBytes_FromStringAndSize(<const char*>source.data + value_at, value_size))
            place = 0
            if index < waited:
                place = prepared[index]
            reserve(&output, size)
            to = output.data + output.size
            to = put32(to, <uint32_t>size)
            to = put32(to, magic)
            to = put32(to, crc & 0x7FFFFFFF)
            to = put32(to, <uint32_t>queue_id)
            to = put32(to, <uint32_t><int32_t>known[1])
            to = put64(to, <uint64_t>offset)
            to = put64(to, <uint64_t>(high | offset))
            to = put32(to, <uint32_t>(<int32_t>known[2] | store_flag))
            to = put64(to, <uint64_t>born_ms)
            to = put(to, PyBytes_AS_STRING(born), PyBytes_GET_SIZE(born))
            to = put(to, PyBytes_AS_STRING(stored), PyBytes_GET_SIZE(stored))
            to = put32(to, <uint32_t><int32_t>known[5])
            to = put64(to, <uint64_t>place)
            to = put32(to, <uint32_t>value_size)
            to = put(to, source.data + value_at, value_size)
            to = put(to, PyBytes_AS_STRING(behind_body), PyBytes_GET_SIZE(behind_body))
            to[0] = <uint8_t>(text_size >> 8)
            to[1] = <uint8_t>text_size
            to += 2
            if uniq_size:
                to = put(to, UNIQ_PROPERTY, UNIQ_PROPERTY_BYTES)
                to = put(to, source.data + uniq_at, uniq_size)
                to[0] = 2
                to += 1
            to = put(to, PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties))
            output.size = to - output.data
            sizes.append(size)
            offsets.append(offset)
        return PyBytes_FromStringAndSize(<const char*>output.data, output.size)
    finally:
        free(output.data)
