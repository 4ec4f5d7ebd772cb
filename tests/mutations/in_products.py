"""What is broken in lists of products."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

PRODUCTS = 'tests/cpu/test_product_list.py'
SHARES = 'tests/cpu/test_depth_shares.py'

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
    Mutation(
        'parts of a sum over rows that write to one place',
        'cpu/product_list.py',
        'out = pointer_at(out, part * rows * width)',
        'out = pointer_at(out, 0)',
        f'{SHARES} -k weights_gradient',
    ),
    Mutation(
        'a part of a sum over rows that begins its result anew with each piece but the first of all',
        'cpu/product_list.py',
        'looks = by_depth and begin > start and',
        'looks = by_depth and begin > 0 and',
        f'{SHARES} -k rows_that_are_zero',
    ),
    Mutation(
        'a sum over rows in parts that is read before it is there',
        'cpu/depth_shares.py',
        'if not shares and (product[4] in late or product[10] in late):',
        'if not shares and product[4] in late:',
        f'{SHARES} -k adds_to_a_sum',
    ),
    Mutation(
        'parts beyond the shares of a sum over rows',
        'cpu/product_list.py',
        'if part >= shares:',
        'if part > shares:',
        f'{SHARES} -k fewer_shares',
    ),
    Mutation(
        'the last panel of a weight that is turned',
        'cpu/product_list.py',
        'begins * depth - begins), min(wide, width - begins)',
        'begins * depth - begins), wide',
        f'{PRODUCTS} -k test_products',
    ),
    Mutation(
        'a sum of parts over the rows of a longer result',
        'cpu/product_list.py',
        'store(out, row * out_step + column, found, width - column)',
        'store(out, row * width + column, found, width - column)',
        f'{SHARES} -k weights_gradient',
    ),
    Mutation(
        'a sum over rows in parts that forgets what it is added to',
        'cpu/depth_shares.py',
        '*products, 0, addend, addend_step,',
        '*products, 0, 0, addend_step,',
        f'{SHARES} -k weights_gradient',
    ),
    Mutation(
        'groups of rows of which one is zero',
        'cpu/product_list.py',
        'are_corners_zero({rows}) and are_zero({rows}):',
        'are_corners_zero({rows}):',
        'tests/cpu/test_product_list.py -k zero',
    ),
    Mutation(
        'pieces of a depth of which one row is zero',
        'cpu/product_list.py',
        'if looks and are_zero(left, begin, end, words[i + 6], first, last):',
        'if looks:',
        'tests/cpu/test_product_list.py -k zero',
    ),
    Mutation(
        'zero times what is not finite',
        'cpu/product_list.py',
        'words[i + 14] = FINITE if finite else NOT_FINITE',
        'words[i + 14] = FINITE',
        'tests/cpu/test_product_list.py -k zero',
    ),
    Mutation(
        'the first piece of a depth, which writes the result',
        'cpu/product_list.py',
        'looks = by_depth and begin > start and',
        'looks = by_depth and',
        'tests/cpu/test_product_list.py -k zero',
    ),
    Mutation(
        'the end of a row that is zero',
        'cpu/zero_rows.py',
        'for i in range(begin, end, {lanes}):',
        'for i in range(begin, end - {lanes - 1}, {lanes}):',
        'tests/ops/test_few_edges.py -k few_rows',
    ),
    Mutation(
        'edges into rows whose gradient is zero',
        'cpu/few_edges.py',
        'is_zero[v] = are_zero(x, v, v + 1, width, start, last)',
        'is_zero[v] = are_zero(x, v, v + 1, width, start, start + 1)',
        'tests/ops/test_few_edges.py -k few_rows',
    ),
    Mutation(
        'rows of no depth, where there is no left factor',
        'cpu/product_list.py',
        'is_worth = depth > 0 and width',
        'is_worth = width',
        'tests/cpu/test_product_list.py -k no_depth',
    ),
)
