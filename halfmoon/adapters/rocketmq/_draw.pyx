# cython: language_level=3, cdivision=True
"""The loop of drawing.py in C: the same records from the same messages. drawing.py says what they look like.

Bytes come from anybody. Each read is behind a comparison with the batch's end. Lengths are below 2**31 and offsets are
Py_ssize_t, so no sum overflows.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

cdef Py_ssize_t HEAD_BYTES = 20
cdef Py_ssize_t MOST_READS = 256, MOST_READ_BYTES = 1 << 16
cdef const char* MARK = b"UNIQ_KEY\x01"
cdef Py_ssize_t NAME_BYTES = 8, MARK_BYTES = 9
cdef const char* FLAG = b"__FLAG"
cdef Py_ssize_t FLAG_BYTES = 6
cdef uint8_t AFTER = 2

cdef struct Output:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t room

cdef struct Text:
    const uint8_t* at
    Py_ssize_t size


cdef inline int32_t int32_at(const uint8_t* at) noexcept nogil:
    return <int32_t>(<uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3])


cdef inline Py_ssize_t varint_bytes(Py_ssize_t number) noexcept nogil:
    cdef Py_ssize_t left = number << 1, count = 1
    while left >= 0x80:
        left >>= 7
        count += 1
    return count


cdef inline uint8_t* put_varint(uint8_t* at, Py_ssize_t number) noexcept nogil:
    cdef Py_ssize_t left = number << 1
    while left >= 0x80:
        at[0] = <uint8_t>(left & 0x7F | 0x80)
        at += 1
        left >>= 7
    at[0] = <uint8_t>left
    return at + 1


cdef inline uint8_t* put(uint8_t* at, const void* data, Py_ssize_t size) noexcept nogil:
    memcpy(at, data, size)
    return at + size


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


cdef inline bint alike(Text one, Text other) noexcept nogil:
    return one.size == other.size and memcmp(one.at, other.at, one.size) == 0


cdef const uint8_t* unique_mark(Text text) noexcept nogil:
    """Where the name of the first UNIQ_KEY begins that is a whole name; NULL: nowhere."""
    cdef const uint8_t* at = text.at
    cdef const uint8_t* last = text.at + text.size - MARK_BYTES
    while at <= last:
        at = <const uint8_t*>memchr(at, MARK[0], last - at + 1)
        if at == NULL:
            return NULL
        if (at == text.at or at[-1] == AFTER) and memcmp(at, MARK, MARK_BYTES) == 0:
            return at
        at += 1
    return NULL


def draw(
    bytes data not None, Py_ssize_t at, Py_ssize_t index, Py_ssize_t most, bytes more not None, Py_ssize_t more_count, read
):
    """As drawing.py's."""
    cdef const uint8_t* begin = <const uint8_t*>PyBytes_AS_STRING(data)
    cdef Py_ssize_t end = PyBytes_GET_SIZE(data), last = index + most
    cdef Py_ssize_t body_at, text_at, after, count, head, tail, flag_size, rest_count = 0, reads = 0, read_bytes = 0
    cdef int32_t size, flag, length
    cdef Text text, body, uniq, before, behind, known_before, known_behind, key, headers
    cdef const uint8_t* mark
    cdef const uint8_t* uniq_end
    cdef Output output
    cdef uint8_t* to
    cdef char digits[16]
    cdef bint known = False
    cdef bytes rest, known_rest = None, key_bytes, headers_bytes
    output.data, output.size, output.room = NULL, 0, 0
    known_before.at, known_before.size, known_behind.at, known_behind.size = begin, 0, begin, 0
    key.at, key.size, headers.at, headers.size = begin, 0, begin, 0
    if at < 0:
        raise ValueError("no message begins there")
    try:
        while at < end and index < last and reads < MOST_READS and read_bytes < MOST_READ_BYTES:
            if end - at < HEAD_BYTES:
                raise ValueError("the batch ends within a message")
            size, flag, length = int32_at(begin + at), int32_at(begin + at + 12), int32_at(begin + at + 16)
            body_at = at + HEAD_BYTES
            text_at = body_at + length + 2
            if length < 0 or text_at > end:
                raise ValueError("the batch ends within a message")
            after = text_at + (<Py_ssize_t>begin[text_at - 2] << 8 | begin[text_at - 1])
            if after != at + size or after > end:
                raise ValueError("a message of the batch has a wrong length")
            body.at, body.size = begin + body_at, length
            text.at, text.size = begin + text_at, after - text_at

            mark = unique_mark(text)
            uniq.at, uniq.size = begin, 0
            before, behind.at, behind.size = text, begin, 0
            if mark != NULL:
                before.size = mark - text.at
                uniq.at = mark + MARK_BYTES
                uniq_end = <const uint8_t*>memchr(uniq.at, AFTER, text.at + text.size - uniq.at)
                if uniq_end == NULL:
                    uniq.size = text.at + text.size - uniq.at
                else:
                    uniq.size = uniq_end - uniq.at
                    behind.at, behind.size = uniq_end + 1, text.at + text.size - uniq_end - 1
            if not known or not alike(before, known_before) or not alike(behind, known_behind):
                rest = (
                    PyBytes_FromStringAndSize(<const char*>before.at, before.size)
                    + PyBytes_FromStringAndSize(<const char*>behind.at, behind.size)
                )
                known_before, known_behind = before, behind
                if not known or rest != known_rest:
                    key_bytes, rest_count, headers_bytes, _ = read(rest)
                    key.at, key.size = <const uint8_t*>PyBytes_AS_STRING(key_bytes), PyBytes_GET_SIZE(key_bytes)
                    headers.at = <const uint8_t*>PyBytes_AS_STRING(headers_bytes)
                    headers.size = PyBytes_GET_SIZE(headers_bytes)
                    known_rest, known = rest, True
                    reads += 1
                    read_bytes += PyBytes_GET_SIZE(rest)

            count = rest_count + more_count + (uniq.size > 0) + (flag != 0)
            head = 2 + varint_bytes(index) + key.size + varint_bytes(body.size)
            tail = varint_bytes(count) + headers.size + PyBytes_GET_SIZE(more)
            if uniq.size:
                tail += 1 + NAME_BYTES + varint_bytes(uniq.size) + uniq.size
            flag_size = 0
            if flag:
                flag_size = snprintf(digits, sizeof(digits), b"%d", <int>flag)
                tail += 1 + FLAG_BYTES + varint_bytes(flag_size) + flag_size
            reserve(&output, 10 + head + body.size + tail)
            to = put_varint(output.data + output.size, head + body.size + tail)
            to[0] = to[1] = 0  # attributes, and as much later as the batch's own time
            to = put_varint(to + 2, index)
            to = put(to, key.at, key.size)
            to = put_varint(to, body.size)
            to = put(to, body.at, body.size)
            to = put_varint(to, count)
            if uniq.size:
                to = put(put_varint(to, NAME_BYTES), MARK, NAME_BYTES)
                to = put(put_varint(to, uniq.size), uniq.at, uniq.size)
            to = put(to, headers.at, headers.size)
            if flag:
                to = put(put_varint(to, FLAG_BYTES), FLAG, FLAG_BYTES)
                to = put(put_varint(to, flag_size), digits, flag_size)
            to = put(to, PyBytes_AS_STRING(more), PyBytes_GET_SIZE(more))
            output.size = to - output.data
            index += 1
            at = after
        return PyBytes_FromStringAndSize(<const char*>output.data, output.size), at, index
    finally:
        free(output.data)
