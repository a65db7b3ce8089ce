"""Check, before anything is run, that a statement only reads the table `messages`, on DuckDB's own parse of it.

DuckDB gives its parse as JSON, and only of queries. The check visits all of it, and each node, name and function in it
must be one that is allowed below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reput.sinks.table.data_file import KEY_COLUMNS
from reput.source.errors import OptionError
from reput.source.printable import printable
from reput.streaming.sql.output import Scope, folded

# ----------------------------------------------------------------------------------------------------------------------
# The parts that `reput sql` allows in a statement for DuckDB: each only reads the table, or computes.
#
# Anything that is not named here is refused, so that nodes and functions of a later DuckDB are refused until a
# developer has reviewed them. `FUNCTIONS_REFUSED` has no effect: it records decisions, for the test that compares both
# lists with DuckDB's own registry.


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Parts of a parsed query, as DuckDB's `json_serialize_sql` names them in ``type``: queries, their sources, and
# the order and number of their rows.
NODES: Final = _names(
    """
    SELECT_NODE SET_OPERATION_NODE RECURSIVE_CTE_NODE CTE_NODE
    BASE_TABLE SUBQUERY JOIN TABLE_FUNCTION EXPRESSION_LIST EMPTY PIVOT SHOW_REF
    LIMIT_MODIFIER LIMIT_PERCENT_MODIFIER ORDER_MODIFIER DISTINCT_MODIFIER
    ORDER_DEFAULT ASCENDING DESCENDING
    """
)
# Expressions, as it names them in ``class``. Parameters are not among them.
EXPRESSIONS: Final = _names(
    """
    BETWEEN CASE CAST COLLATE COLUMN_REF COMPARISON CONJUNCTION CONSTANT FUNCTION LAMBDA LAMBDA_REF OPERATOR
    POSITIONAL_REFERENCE STAR SUBQUERY TYPE WINDOW
    """
)
# The end of the name of a description of a data type.
TYPE_INFO: Final = "_TYPE_INFO"
# Statements about the table or a query: DESCRIBE and SUMMARIZE.
DESCRIPTIONS: Final = _names("DESCRIBE SUMMARY")

# Functions in expressions, by kind: each computes a value from its arguments, or from the rows it is given.
FUNCTIONS: Final[dict[str, frozenset[str]]] = {
    kind: _names(names)
    for kind, names in {
        "aggregates": """
            any_value approx_count_distinct approx_quantile approx_top_k arbitrary arg_max arg_max_null
            arg_max_nulls_last arg_min arg_min_null arg_min_nulls_last argmax argmin array_agg avg bit_and bit_or
            bit_xor bitstring_agg bool_and bool_or corr count count_if count_star countif covar_pop covar_samp entropy
            favg first fsum geomean geometric_mean group_concat histogram histogram_exact json_group_array
            json_group_object kahan_sum kurtosis kurtosis_pop last list listagg lttb mad max max_by mean median min
            min_by mode product quantile quantile_cont quantile_disc regr_avgx regr_avgy regr_count regr_intercept
            regr_r2 regr_slope regr_sxx regr_sxy regr_syy reservoir_quantile sem skewness stddev stddev_pop
            stddev_samp string_agg sum sum_no_overflow sumkahan var_pop var_samp variance wavg weighted_avg""",
        "arrays": """
            aggregate apply array_aggr array_aggregate array_append array_apply array_cat array_concat array_contains
            array_cosine_distance array_cosine_similarity array_cross_product array_distance array_distinct
            array_dot_product array_extract array_filter array_grade_up array_has array_has_all array_has_any
            array_indexof array_inner_product array_intersect array_length array_negative_dot_product
            array_negative_inner_product array_pop_back array_pop_front array_position array_prepend array_push_back
            array_push_front array_reduce array_resize array_reverse array_reverse_sort array_select array_slice
            array_sort array_to_string array_to_string_comma_default array_transform array_unique array_value
            array_where array_zip cardinality contains element_at filter flatten generate_series grade_up len length
            list_aggr list_aggregate list_any_value list_append list_apply list_approx_count_distinct list_avg
            list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or list_cat list_concat list_contains
            list_cosine_distance list_cosine_similarity list_count list_distance list_distinct list_dot_product
            list_element list_entropy list_extract list_filter list_first list_grade_up list_has list_has_all
            list_has_any list_histogram list_indexof list_inner_product list_intersect list_kurtosis
            list_kurtosis_pop list_last list_mad list_max list_median list_min list_mode list_negative_dot_product
            list_negative_inner_product list_pack list_position list_prepend list_product list_reduce list_resize
            list_reverse list_reverse_sort list_select list_sem list_skewness list_slice list_sort list_stddev_pop
            list_stddev_samp list_string_agg list_sum list_transform list_unique list_value list_var_pop
            list_var_samp list_where list_zip range reduce unnest unpivot_list && <@ @> <-> <=>""",
        "maps and structs": """
            map map_concat map_contains map_contains_entry map_contains_value map_entries map_extract
            map_extract_value map_from_entries map_keys map_values row struct_concat struct_contains struct_extract
            struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_pack struct_position
            struct_update struct_values union_extract union_tag union_value""",
        "bits": "& << >> bit_count bit_length bit_position bitstring get_bit set_bit xor | ~",
        "conditions": "assert_true coalesce constant_or_null error if ifnull nullif switch",
        "conversions": """
            bin can_cast_implicitly cast_to_type decode encode enum_code enum_first enum_last enum_range
            enum_range_boundary format_bytes formatreadabledecimalsize formatreadablesize from_base64 from_binary
            from_hex hex parse_formatted_bytes pg_size_pretty pg_typeof to_base to_base64 to_binary to_hex typeof
            unbin unhex base64""",
        "dates and times": """
            age ago century current_date current_localtime current_localtimestamp date_add date_diff date_part
            date_sub date_trunc datediff datepart datesub datetrunc day dayname dayofmonth dayofweek dayofyear
            days_in_month decade epoch epoch_ms epoch_ns epoch_us era get_current_time get_current_timestamp hour
            isodow isoyear julian last_day make_date make_time make_timestamp make_timestamp_ms make_timestamp_ns
            make_timestamptz microsecond millennium millisecond minute month monthname nanosecond
            normalized_interval now quarter second strftime strptime time_bucket timezone timezone_hour
            timezone_minute to_centuries to_days to_decades to_hours to_microseconds to_millennia to_milliseconds
            to_minutes to_months to_quarters to_seconds to_timestamp to_weeks to_years today transaction_timestamp
            try_strptime week weekday weekofyear year yearweek""",
        "hashes": "hash md5 md5_number md5_number_lower md5_number_upper sha1 sha256",
        "json": """
            ->> array_to_json from_json from_json_strict json json_array json_array_length json_contains
            json_deep_merge json_exists json_extract json_extract_path json_extract_path_text json_extract_string
            json_insert json_keys json_merge_patch json_merge_patch_diff json_normalize json_object json_pretty
            json_quote json_remove json_replace json_set json_strip_nulls json_structure json_transform
            json_transform_strict json_type json_valid json_value row_to_json to_json""",
        "mathematics": """
            !__postfix % * ** + - / // @ ^ abs acos acosh add asin asinh atan atan2 atanh binom cbrt ceil ceiling cos
            cosh cot decimal_division degrees divide equi_width_bins even exp factorial fdiv floor fmod gamma gcd
            greatest greatest_common_divisor isfinite isinf isnan is_histogram_other_bin lcm least
            least_common_multiple lgamma ln log log10 log2 mod multiply nextafter pi pow power radians random round
            round_even roundbankers sign signbit sin sinh sqrt subtract tan tanh trunc""",
        "predicates": """
            != !~~ !~~* < <= <> = > >= ^@ __between __cast ends_with ilike_escape like_escape not_ilike_escape
            not_like_escape prefix regexp_full_match regexp_matches starts_with suffix ~~ ~~* ~~~""",
        "strings": """
            || alias ascii bar char_length character_length chr concat concat_ws damerau_levenshtein editdist3 format
            format_pg_type format_type hamming instr jaccard jaro_similarity jaro_winkler_similarity lcase left
            left_grapheme length_grapheme levenshtein lower lpad ltrim mismatches nfc_normalize octet_length ord
            overlay parse_dirname parse_dirpath parse_filename parse_path path_join position printf regexp_escape
            regexp_extract regexp_extract_all regexp_replace regexp_split_to_array repeat replace reverse right
            right_grapheme rpad rtrim split split_part str_split str_split_regex string_split string_split_regex
            string_to_array strip_accents strlen strpos substr substring substring_grapheme translate trim ucase
            unicode upper url_decode url_encode""",
        "unique ids": "gen_random_uuid uuid uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7",
        "windows": """
            cume_dist dense_rank fill first_value lag last_value lead nth_value ntile percent_rank rank rank_dense
            row_number""",
        "about the statement itself": "current_user session_user user version grouping grouping_id",
        "functions of Spark's, see `MACROS`": "explode timestamp_millis unix_millis",
    }.items()
}
# Functions of Spark's that DuckDB has by another name, so that a statement with them means the same in both.
MACROS: Final = {
    "explode(list)": "unnest(list)",
    "timestamp_millis(milliseconds)": "CAST(epoch_ms(milliseconds) AS TIMESTAMP WITH TIME ZONE)",
    # The whole milliseconds before a moment, also before 1970; `epoch_ms` takes the nearest.
    "unix_millis(moment)": "(epoch_us(moment) - (epoch_us(moment) % 1000 + 1000) % 1000) // 1000",
}

# Functions used as tables: each makes rows from its arguments.
TABLE_FUNCTIONS: Final = _names("generate_series json_each json_tree range repeat unnest")

# Refused functions by reason. Functions whose names begin like `REFUSED_BEGINNINGS` are also refused, like everything
# that is not allowed.
FUNCTIONS_REFUSED: Final[dict[str, frozenset[str]]] = {
    reason: _names(names)
    for reason, names in {
        "reads files, or takes addresses of memory": """
            arrow_scan arrow_scan_dumb glob pandas_scan python_arrow_scan python_map_function seq_scan sniff_csv
            add_parquet_key""",
        "runs a text, or reads a table that is named by a text": """
            json_execute_serialized_sql query query_table json_deserialize_sql json_serialize_plan json_serialize_sql
            generate_subscripts regexp_split_to_table summary repeat_row truncate_duckdb_logs histogram_values""",
        "reads or changes settings, variables, sequences, or DuckDB's own state": """
            checkpoint collations copy_database create_external_resource current_catalog current_connection_id
            current_database current_query current_query_id current_role current_schema current_schemas
            current_setting current_transaction_id currval database_list database_size deregister_external_resource
            destroy_external_resource extension_versions force_checkpoint functions get_block_size getvariable
            import_database in_search_path metadata_info nextval platform register_external_resource
            register_external_resource_type setseed setval show show_databases show_tables
            show_tables_expanded stats storage_info table_info txid_current user_agent which_secret write_log
            parse_duckdb_log_message icu_calendar_names vector_type add_grammar_extension remove_grammar_extension
            map_type_id_to_pg_oid""",
        "waits": "pg_sleep sleep_ms",
        "is not a function but a part of DuckDB's plans, or of its type system": """
            bitstring_byte_comparable combine combine_aggr create_sort_key decimal_average finalize get_type
            hive_partition_component icu_sort_key index_key invoke make_type map_to_pg_oid remap_struct replace_type
            timetz_byte_comparable to_aggregate_state json_copy_strftime_if_date
            json_copy_strftime_if_timestamp json_group_structure test_all_types test_vector_types
            variant_group_array variant_group_object""",
        "works on a type that the table has not": """
            st_asbinary st_asgeojson st_astext st_aswkb st_aswkt st_crs st_geomfromgeojson st_geomfromwkb
            st_intersects_extent st_setcrs vertex_extract variant_array_length variant_bytes_to_variant
            variant_comparator variant_contains variant_exists variant_extract variant_extract_string variant_keys
            variant_normalize variant_to_parquet_variant variant_type variant_typeof""",
    }.items()
}
REFUSED_BEGINNINGS: Final = (
    *("__internal_", "collate_", "icu_collate_", "duckdb_", "pragma_", "pg_", "has_", "inet_", "read_", "parquet_"),
    *("enable_", "disable_", "verify_", "IS ", "all_profiling", "col_description", "obj_desc", "shobj_desc"),
)

ALLOWED_FUNCTIONS: Final = frozenset[str]().union(*FUNCTIONS.values())


#: The table's name in a statement.
VIEW = "messages"
_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(ANALYZE\s+)?", re.IGNORECASE)
# The schemas of DuckDB's own functions and operators, which some of its releases spell out.
_OWN_SCHEMAS = frozenset({"", "main", "system"})
_LIST_HAS = frozenset({"list_contains", "array_contains", "list_has", "array_has"})
# `first_key` is also one of the keys.
_KEY_TEXTS = frozenset({*KEY_COLUMNS, "first_key"} - {"keys"})

Node = Mapping[str, Any]


@dataclass(frozen=True)
class Query:
    """A statement that only reads.

    Attributes
    ----------
    text
        The statement.
    keys
        Each row that it needs has one of these among its keys; None if nothing is known about them.
    """

    text: str
    keys: frozenset[str] | None


def check_query(connection: Any, statement: str, relations: Iterable[str] = ()) -> Query:
    """Return the query `statement` if it only reads `messages`; DuckDB's `connection` parses it.

    `relations` are the names, in lower case, of other relations that it may read.

    Raises
    ------
    OptionError
        It contains something that is not known to only read, it has several statements or none, or DuckDB's parser does
        not understand it.
    """
    if "\0" in statement:
        raise OptionError("the statement has a byte 0")
    explain = _EXPLAIN.match(statement)
    query = statement[explain.end() :] if explain else statement
    # This only parses. `extract_statements` would execute a PRAGMA, and open the files of an IMPORT.
    parsed = json.loads(connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0][0])
    if parsed["error"] and parsed["error_type"] == "parser":
        position = None if "position" not in parsed else len(statement) - len(query) + int(parsed["position"])
        raise OptionError(f"cannot run the query: {parsed['error_message']}{_where(statement, position)}")
    if parsed["error"]:
        raise _refused("only queries, and DESCRIBE, SUMMARIZE and EXPLAIN of one, are known to only read")
    if (count := len(parsed["statements"])) != 1:
        raise OptionError("the statement is empty" if count == 0 else _words(f"{count} statements, not one"))
    walk = _Walk()
    walk.check(parsed["statements"][0], frozenset(relations))
    return Query(statement, None if walk.reads_all else frozenset(walk.keys))


def _where(statement: str, position: int | None) -> str:
    """Return a position in the statement, in words; DuckDB counts its bytes."""
    if position is None:
        return ""
    *lines, last = statement.encode()[:position].decode(errors="ignore").split("\n")
    return f" (line {len(lines) + 1}, column {len(last) + 1})"


class _Walk:
    """A walk over a parsed statement.

    Attributes
    ----------
    reads_all
        Whether the table is read in a place that asks for no key.
    keys
        The keys that other places ask for.
    """

    def __init__(self) -> None:
        self.reads_all = False
        self.keys: set[str] = set()

    def check(self, statement: Node, relations: Scope) -> None:
        todo: list[tuple[Any, Scope, frozenset[str]]] = [(statement, relations, ALLOWED_FUNCTIONS)]
        while todo:
            value, scope, functions = todo.pop()
            if isinstance(value, list):
                todo += [(each, scope, functions) for each in value]
            elif isinstance(value, dict) and value.get("class") != "CONSTANT":
                self._check_node(value, scope, functions)
                todo += self._below(value, scope)

    def _check_node(self, node: Node, scope: Scope, functions: frozenset[str]) -> None:
        kind, expression = node.get("type"), node.get("class")
        if expression is not None:
            if expression not in EXPRESSIONS:
                raise _refused(f"{expression} is not among the expressions that are known to only read")
        elif isinstance(kind, str) and kind not in NODES and not kind.endswith(TYPE_INFO):
            raise _refused(f"{kind} is not among the parts of a query that are known to only read")
        if "function_name" in node:
            _check_function(node, functions)
        if kind == "BASE_TABLE":
            self._check_table(node, scope)
        elif kind == "SHOW_REF":
            self._check_description(node)
        elif kind == "PIVOT" and any(pivot.get("pivot_enum") for pivot in node.get("pivots") or ()):
            raise _refused("the values of a pivot are given in the statement, not by a type")

    def _check_table(self, node: Node, scope: Scope) -> None:
        _check_table_name(_path(node, "table_name"), scope)
        if node.get("at_clause") is not None:
            raise _refused(f"{VIEW} is read as it is; --at takes another version")
        if folded(node["table_name"]) not in scope and not node.get(_ASKED):
            self.reads_all = True

    def _check_description(self, node: Node) -> None:
        if node.get("show_type") not in DESCRIPTIONS:
            raise _refused("what can be shown are the columns of a table or a query: DESCRIBE messages")
        if node.get("query") is None:
            _check_table_name([part.strip('"') for part in _path(node, "table_name")], frozenset())

    def _below(self, node: Node, scope: Scope) -> Iterator[tuple[Any, Scope, frozenset[str]]]:
        """Yield what must be checked inside a node: a query of WITH sees those before it, and itself if it recurs."""
        queries = (node.get("cte_map") or {}).get("map", ())
        for each in queries:
            yield each["value"], scope, ALLOWED_FUNCTIONS
            scope = scope | {folded(each["key"])}
        if node.get("type") == "RECURSIVE_CTE_NODE":
            scope = scope | {folded(node["cte_name"])}
        if node.get("type") == "SELECT_NODE":
            node = self._with_asked(node, scope)
        is_table = node.get("type") == "TABLE_FUNCTION"
        for name, value in node.items():
            if name == "function" and is_table:
                yield value, scope, TABLE_FUNCTIONS
            elif name != "cte_map":
                yield value, scope, ALLOWED_FUNCTIONS

    def _with_asked(self, select: Node, scope: Scope) -> Node:
        """Return the query with its table marked, if all rows that it takes from the table have one of some keys."""
        table = select["from_table"]
        if table.get("type") != "BASE_TABLE" or VIEW in scope or table.get("column_name_alias"):
            return select
        if any(folded(each.get("alias") or "") in {*_KEY_TEXTS, "keys"} for each in select["select_list"]):
            return select
        for condition in _conditions(select.get("where_clause")):
            if (keys := _keys_of(condition, table.get("alias") or VIEW)) is not None:
                self.keys |= keys
                return {**select, "from_table": {**table, _ASKED: True}}
        return select


# Marks a table of which only rows with certain keys are needed; not a name in DuckDB.
_ASKED = "reput asked"


def _check_function(node: Node, functions: frozenset[str]) -> None:
    *schemas, name = _path(node, "function_name")
    schemas += [node.get("schema") or "", node.get("catalog") or ""]
    if folded(name) not in functions or not _OWN_SCHEMAS.issuperset(schemas):
        raise _refused(f"function {name} is not among those that are known to only compute or read here")


def _check_table_name(path: list[str], scope: Scope) -> None:
    if len(path) != 1 or folded(path[0]) not in {VIEW, *scope}:
        name = ".".join(f'"{part}"' for part in path)
        raise _refused(f"the only tables are {VIEW} and the statement's own WITH queries; found {name}")


def _path(node: Node, name: str) -> list[str]:
    """Return a name and its qualifiers, in the form of any release of DuckDB."""
    qualified = (node.get("qualified_name") or {}).get("path")
    before = [node.get(part) for part in ("catalog_name", "schema_name") if node.get(part)]
    return [str(part) for part in qualified or (*before, node[name])]


def _conditions(where: Node | None) -> Iterator[Node]:
    """Yield the conditions all of which a row must meet."""
    if where is None:
        return
    if where.get("type") == "CONJUNCTION_AND":
        for each in _arguments(where):
            yield from _conditions(each)
    else:
        yield where


def _keys_of(condition: Node, table: str) -> frozenset[str] | None:
    """Return the keys of which a row must have one to meet the condition; None if it asks for none."""
    kind, function = condition.get("type"), condition.get("function_name")
    if kind == "CONJUNCTION_OR":
        each = [_keys_of(part, table) for part in _arguments(condition)]
        return None if None in each else frozenset[str]().union(*(part for part in each if part is not None))
    values = _arguments(condition)
    if function in _LIST_HAS and len(values) == 2:
        column, texts, names = values[0], values[1:], frozenset({"keys"})
    elif kind == "COMPARE_IN" and values:
        column, texts, names = values[0], values[1:], _KEY_TEXTS
    elif kind == "COMPARE_EQUAL":
        column, texts, names = condition["left"], [condition["right"]], _KEY_TEXTS
        if column.get("class") == "CONSTANT":
            column, texts = texts[0], [column]
    else:
        return None
    found = [_text(each) for each in texts]
    keys = frozenset(text for text in found if text is not None)
    return keys if _is_column(column, names, table) and len(found) == len(texts) and None not in found else None


def _is_column(node: Node, names: frozenset[str], table: str) -> bool:
    *qualifier, name = (folded(part) for part in node.get("column_names") or ("",))
    return node.get("class") == "COLUMN_REF" and name in names and qualifier in ([], [folded(table)])


def _arguments(node: Node) -> list[Node]:
    """Return the arguments of a function or an operator, in the form of any release of DuckDB."""
    arguments = node.get("arguments")
    return list(node.get("children") or ()) if arguments is None else [each["expression"] for each in arguments]


def _text(node: Node) -> str | None:
    """Return the text of an expression that is a text; None for any other expression."""
    if node.get("class") != "CONSTANT":
        return None
    literal, value = node.get("literal") or {}, node.get("value") or {}
    if literal.get("kind") == "STRING":
        return str(literal["text"])
    is_text = (value.get("type") or {}).get("id") == "VARCHAR" and not value.get("is_null", True)
    return str(value["value"]) if is_text else None


def _refused(what: str) -> OptionError:
    return OptionError(_words(what))


def _words(what: str) -> str:
    return f"refused: {printable(what)} (docs/commands/sql.md)"
