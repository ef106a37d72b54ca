"""Lists of compiled models with stored inputs, for runs without Python (tests/cpp/run_list.cpp).

Other processors, sanitizers, many callers and long runs all take the same lists.
"""
