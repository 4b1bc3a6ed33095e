#!/usr/bin/env python3
"""Prints the bytes of two TensorBoard records in hexadecimal, for tests/train/event_writer_test.cpp.

Independent of any library: written from the specifications of the protobuf wire format and TFRecord, with a bitwise
CRC-32C.
"""
import struct


def crc32c(data):
    rest = 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            carry = (rest ^ (byte >> bit)) & 1
            rest = (rest >> 1) ^ (0x82F63B78 if carry else 0)
    return rest ^ 0xFFFFFFFF


def masked(data):
    value = crc32c(data)
    return (((value >> 15) | (value << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value):
    out = b""
    while True:
        value, low = value >> 7, value & 127
        out += bytes([low | (128 if value else 0)])
        if not value:
            return out


def field(number, payload):
    return varint(number * 8 + 2) + varint(len(payload)) + payload


def record(message):
    length = struct.pack("<Q", len(message))
    return length + struct.pack("<I", masked(length)) + message + struct.pack("<I", masked(message))


def event(wall_time, rest):
    return varint(1 * 8 + 1) + struct.pack("<d", wall_time) + rest


def scalar(tag, value):
    return field(1, field(1, tag.encode()) + varint(2 * 8 + 5) + struct.pack("<f", value))


print(record(event(1700000000.25, field(3, b"brain.Event:2"))).hex())
summary = scalar("loss", 1.5) + scalar("lr/größe", -3.0e-4) + scalar("x" * 200, 7.0)
print(record(event(1700000001.5, varint(2 * 8) + varint(123456) + field(5, summary))).hex())
