"""Examinations of judges: an exam for any judge, rejudging of stored replies, fuzzers and load tests.

Whetstone finds this package through its entry points and imports nothing from it.
"""
