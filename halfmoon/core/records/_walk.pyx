# cython: language_level=3, cdivision=True
"""The loop of walk.py in C: the same checks in the same order, with the same results. walk.py says what they mean.

Bytes come from anybody. Each read of a byte is behind a comparison with the body's end, and no sum can overflow: lengths
are below 2**31, and the body's size is a Py_ssize_t. Only `walk` knows of Python; it lets go of the GIL where the body is
large.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t

cdef enum Fault:
    SOUND
    CUT
    FIVE_BYTES
    TEN_BYTES
    BITS_32
    BITS_64
    LENGTH
    TIMESTAMP
    OFFSET
    NEGATIVE
    BEYOND
    HEADERS
    NO_NAME
    SIZE
    REST

cdef Py_ssize_t SMALLEST_LENGTH = 6
cdef Py_ssize_t LONG_BYTES = 1 << 20

cdef struct Place:
    const uint8_t* body
    Py_ssize_t size
    Py_ssize_t at

cdef struct Found:
    int fault
    Py_ssize_t index
    Py_ssize_t keyless
    bint has_headers


cdef inline int read_int(Place* place, uint64_t* number) noexcept nogil:
    """A number of 32 bits at the place, not yet zigzag-decoded; the place moves behind it."""
    cdef uint64_t raw
    cdef uint8_t byte
    cdef int shift = 7
    if place.at >= place.size:
        return CUT
    byte = place.body[place.at]
    place.at += 1
    number[0] = byte
    if byte < 0x80:  # as most are
        return SOUND
    raw = byte & 0x7F
    while shift < 35:
        if place.at >= place.size:
            return CUT
        byte = place.body[place.at]
        place.at += 1
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            if raw > 0xFFFFFFFFU:
                return BITS_32
            number[0] = raw
            return SOUND
        shift += 7
    return FIVE_BYTES


cdef inline int read_long(Place* place, uint64_t* number) noexcept nogil:
    """As `read_int`, of 64 bits."""
    cdef uint64_t raw
    cdef uint8_t byte
    cdef int shift = 7
    if place.at >= place.size:
        return CUT
    byte = place.body[place.at]
    place.at += 1
    number[0] = byte
    if byte < 0x80:
        return SOUND
    raw = byte & 0x7F
    while shift < 70:
        if place.at >= place.size:
            return CUT
        byte = place.body[place.at]
        place.at += 1
        if byte < 0x80 and shift == 63 and byte > 1:
            return BITS_64
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            number[0] = raw
            return SOUND
        shift += 7
    return TEN_BYTES


cdef inline int skip(Place* place, Py_ssize_t end, bint* is_null) noexcept nogil:
    """Behind a key or value that may be null."""
    cdef uint64_t raw = 0
    cdef int fault = read_int(place, &raw)
    if fault:
        return fault
    is_null[0] = raw == 1
    if raw & 1:
        return SOUND if raw == 1 else NEGATIVE
    if <Py_ssize_t>(raw >> 1) > end - place.at:
        return BEYOND
    place.at += <Py_ssize_t>(raw >> 1)
    return SOUND


cdef int record(
    Place* place, Py_ssize_t index, int64_t lowest, int64_t highest, bint* keyless, bint* has_headers
) noexcept nogil:
    cdef uint64_t raw = 0, headers
    cdef int64_t delta
    cdef int fault
    cdef Py_ssize_t length, end
    cdef bint is_null
    fault = read_int(place, &raw)
    if fault:
        return fault
    length = <Py_ssize_t>(raw >> 1)
    if raw & 1 or length < SMALLEST_LENGTH or length > place.size - place.at:
        return LENGTH
    end = place.at + length
    place.at += 1
    fault = read_long(place, &raw)
    if fault:
        return fault
    delta = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
    if delta < lowest or delta > highest:
        return TIMESTAMP
    fault = read_int(place, &raw)
    if fault:
        return fault
    if raw != 2 * <uint64_t>index:
        return OFFSET
    fault = skip(place, end, keyless)
    if fault:
        return fault
    fault = skip(place, end, &is_null)
    if fault:
        return fault
    fault = read_int(place, &headers)
    if fault:
        return fault
    if headers and (headers & 1 or <Py_ssize_t>headers > end - place.at):
        return HEADERS
    if headers:
        has_headers[0] = True
    headers >>= 1
    while headers:
        headers -= 1
        fault = read_int(place, &raw)
        if fault:
            return fault
        if raw & 1:
            return NO_NAME if raw == 1 else NEGATIVE
        if <Py_ssize_t>(raw >> 1) > end - place.at:
            return BEYOND
        place.at += <Py_ssize_t>(raw >> 1)
        fault = skip(place, end, &is_null)
        if fault:
            return fault
    return SOUND if place.at == end else SIZE


cdef Found records(Place place, Py_ssize_t count, int64_t lowest, int64_t highest) noexcept nogil:
    cdef Found found
    cdef Py_ssize_t index = 0
    cdef bint is_null
    found.fault, found.index, found.keyless, found.has_headers = SOUND, 0, -1, False
    while index < count:
        is_null = False
        found.index = index
        found.fault = record(&place, index, lowest, highest, &is_null, &found.has_headers)
        if is_null and found.keyless < 0:
            found.keyless = index
        if found.fault:
            return found
        index += 1
    if place.at != place.size:
        found.fault, found.index = REST, count
    return found


def walk(buffer, Py_ssize_t start, Py_ssize_t count, int64_t base_timestamp):
    """The fault, the record's index, the first record without a key, and whether one that was looked at has headers, of
    the `count` records at buffer[start:]."""
    cdef Py_buffer view
    cdef Place place
    cdef Found found
    cdef int64_t lowest = INT64_MIN, highest = INT64_MAX
    if base_timestamp > 0:
        highest -= base_timestamp
    else:
        lowest -= base_timestamp
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= view.len:
            raise ValueError("the records begin outside of the buffer")
        place.body, place.size, place.at = <const uint8_t*>view.buf + start, view.len - start, 0
        if place.size < LONG_BYTES:
            found = records(place, count, lowest, highest)
        else:
            with nogil:
                found = records(place, count, lowest, highest)
    finally:
        PyBuffer_Release(&view)
    return found.fault, found.index, found.keyless, found.has_headers


def keyless(buffer, Py_ssize_t start, Py_ssize_t count):
    """The places of the records without a key, of the `count` sound records at buffer[start:]. As far as they are sound."""
    cdef Py_buffer view
    cdef Place place
    cdef bint is_null, has_headers = False
    cdef Py_ssize_t index
    places = []
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= view.len:
            raise ValueError("the records begin outside of the buffer")
        place.body, place.size, place.at = <const uint8_t*>view.buf + start, view.len - start, 0
        for index in range(count):
            is_null = False
            if record(&place, index, INT64_MIN, INT64_MAX, &is_null, &has_headers):
                break
            if is_null:
                places.append(index)
    finally:
        PyBuffer_Release(&view)
    return places
