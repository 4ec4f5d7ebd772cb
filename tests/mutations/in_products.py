"""What is broken in lists of products."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

PRODUCTS = 'tests/cpu/test_product_list.py'

OF_PRODUCTS = (
    Mutation(
        'rows that are no whole share',
        'cpu/product_list.py',
        'last = min(groups * (part + 1) // parts * TOGETHER, rows)',
        'last = min(groups // parts * (part + 1) * TOGETHER, rows)',
        f'{PRODUCTS} -k earlier_result',
    ),
    Mutation(
        'pieces of a long sum that are not added up',
        'cpu/product_list.py',
        'bias, adds, addend, addend_step = 0, 1, out, out_step',
        'bias, adds, addend, addend_step = 0, 0, out, out_step',
        f'{PRODUCTS} -k test_products',
    ),
    Mutation(
        'a bias for each piece of a long sum',
        'cpu/product_list.py',
        'bias, adds, addend, addend_step = 0, 1, out, out_step',
        'adds, addend, addend_step = 1, out, out_step',
        f'{PRODUCTS} -k test_products',
    ),
    Mutation(
        'channels beyond a row',
        'cpu/product_list.py',
        'width - column, bias, at(bias)',
        'lanes, bias, at(bias)',
        f'{PRODUCTS} -k test_products',
    ),
    Mutation(
        'what is left of a weight that is turned by blocks',
        'cpu/product_list.py',
        'range(whole_columns if c < whole_rows else 0, columns)',
        'range(whole_columns, columns)',
        f'{PRODUCTS} -k test_products',
    ),
    Mutation(
        'products that begin before those that they read are computed',
        'ops/product_lines.py',
        '        """Has the products that follow begin once those before are computed."""\n        self._flush()',
        '        """Has the products that follow begin once those before are computed."""',
        'tests/ops/test_product_lines.py',
    ),
)
