"""Check that a statement only reads the table `messages`, on Spark's own parse of it, before anything is run.

Spark runs a command while it makes its DataFrame, and a write may occur anywhere in a statement. So the whole parsed
plan is walked, with every field of every node, and each must be of a kind that is allowed below. Afterwards that
very plan is run, not the text again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from reput.source.errors import OptionError
from reput.source.printable import printable

# ----------------------------------------------------------------------------------------------------------------------
# What `reput sql --engine spark` allows in a statement: everything here only reads the table, or computes.
#
# Anything that is not named here is refused, so that new statements and functions of a later Spark are refused until
# somebody has reviewed them. `FUNCTIONS_REFUSED` has no effect: it records decisions, for the test that compares both
# lists with Spark's own registry.

_CATALYST: Final = "org.apache.spark.sql.catalyst"


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _classes(package: str, names: str) -> frozenset[str]:
    return frozenset(f"{package}.{name}" for name in names.split())


# Nodes of a parsed query. Each of them only describes how rows are made from other rows.
QUERY_NODES: Final = (
    _classes(
        f"{_CATALYST}.plans.logical",
        """
        Aggregate Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit
        LocalRelation NearestByJoin Offset OneRowRelation Pivot Project RepartitionByExpression Sample Sort
        SubqueryAlias Union Unpivot UnresolvedHint UnresolvedWith WithWindowDefinition
        """,
    )
    | _classes(
        f"{_CATALYST}.analysis",
        """
        MultiAlias UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator
        UnresolvedHaving UnresolvedInlineTable UnresolvedOrdinal UnresolvedQualify UnresolvedRelation UnresolvedStar
        UnresolvedStarExceptOrReplace UnresolvedSubqueryColumnAliases UnresolvedTVFAliases
        UnresolvedTableValuedFunction
        """,
    )
    | _classes(
        f"{_CATALYST}.expressions",
        """
        Add Alias And AttributeReference BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Coalesce
        Collate Concat CreateNamedStruct Cube CurrentRow$ Divide EqualNullSafe EqualTo Exists GreaterThan
        GreaterThanOrEqual GroupingSets ILike In InSubquery IntegralDivide IsNotNull IsNotUnknown$$anon$2 IsNull
        IsUnknown$$anon$1 LambdaFunction LateralSubquery LessThan LessThanOrEqual Like LikeAll LikeAny ListQuery
        Literal Lower Multiply NamedArgumentExpression Not NotLikeAll NotLikeAny Or Overlay PipeExpression
        PipeOperator RLike Remainder Rollup ScalarSubquery SemiStructuredExtract ShiftLeft ShiftRight
        ShiftRightUnsigned SortOrder SpecifiedWindowFrame StringLocate StringTrim StringTrimLeft StringTrimRight
        Substring Subtract TimestampAdd TimestampDiff UnaryMinus UnaryPositive UnboundedFollowing$
        UnboundedPreceding$ UnresolvedCollation UnresolvedNamedLambdaVariable UnresolvedWindowExpression
        UnspecifiedFrame$ WindowExpression WindowSpecDefinition
        """,
    )
    | _classes(f"{_CATALYST}.expressions.aggregate", "AggregateExpression AnyValue First Last")
)

# Statements that describe a query or the table, allowed as the whole statement but not inside one.
STATEMENT_NODES: Final = _classes(
    f"{_CATALYST}.plans.logical", "DescribeColumn DescribeFunction DescribeRelation ShowColumns"
) | _classes("org.apache.spark.sql.execution.command", "DescribeQueryCommand ExplainCommand")

# Nodes that name something in these statements only.
STATEMENT_PARTS: Final = _classes(f"{_CATALYST}.analysis", "UnresolvedFunctionName UnresolvedTableOrView")

# Values that nodes consist of and that may hold further nodes.
PARTS: Final = (
    _classes("scala", "None$ Some Tuple2 Tuple3")
    | _classes(_CATALYST, "AliasIdentifier FunctionIdentifier")
    | _classes(
        f"{_CATALYST}.expressions",
        """
        Ascending$ Descending$ ExprId NullsFirst$ NullsLast$ NumericEvalContext RangeFrame$ RowFrame$
        WindowSpecReference
        """,
    )
    | _classes(f"{_CATALYST}.expressions.aggregate", "Complete$")
    | _classes(f"{_CATALYST}.plans.logical", "JoinHint SampleMethod$Bernoulli$ SampleMethod$System$")
    | _classes(
        f"{_CATALYST}.plans",
        """
        Cross$ FullOuter$ Inner$ LeftAnti$ LeftOuter$ LeftSemi$ NaturalJoin NearestByDistance$ NearestBySimilarity$
        RightOuter$ UsingJoin
        """,
    )
    | _classes(
        f"{_CATALYST}.analysis",
        "UnresolvedTableOrViewSearchPathMode$Ddl$ UnresolvedTableOrViewSearchPathMode$QueryLike$",
    )
    | _classes("org.apache.spark.sql.execution", "CodegenMode$ CostMode$ ExtendedMode$ FormattedMode$ SimpleMode$")
)

# Values that hold no nodes. Spark's data types, texts and numbers are such values as well.
VALUES: Final = (
    _classes("java.util", "UUID")
    | _classes("scala", "Enumeration$Val")
    | _classes(f"{_CATALYST}.expressions", "GenericInternalRow")
    | _classes("org.apache.spark.sql.util", "CaseInsensitiveStringMap")
    | _classes("org.apache.spark.unsafe.types", "UTF8String")
)
DATA_TYPES: Final = "org.apache.spark.sql.types."
COLLECTIONS: Final = "scala.collection."

# Functions in expressions, by kind: each computes a value from its arguments, or from the rows it is given.
FUNCTIONS: Final[dict[str, frozenset[str]]] = {
    kind: _names(names)
    for kind, names in {
        "aggregates": """
            any any_value approx_count_distinct approx_percentile approx_top_k approx_top_k_accumulate
            approx_top_k_combine array_agg avg bit_and bit_or bit_xor bitmap_and_agg bitmap_construct_agg
            bitmap_or_agg bool_and bool_or collect_list collect_set corr count count_if count_min_sketch
            covar_pop covar_samp every first first_value grouping grouping_id histogram_numeric hll_sketch_agg
            hll_union_agg kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint
            kll_sketch_agg_double kll_sketch_agg_float kurtosis last last_value listagg max max_by mean median
            min min_by mode percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy
            regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy schema_of_variant_agg
            skewness some std stddev stddev_pop stddev_samp string_agg sum theta_intersection_agg
            theta_sketch_agg theta_union_agg try_avg try_sum tuple_intersection_agg_double
            tuple_intersection_agg_integer tuple_sketch_agg_double tuple_sketch_agg_integer
            tuple_union_agg_double tuple_union_agg_integer var_pop var_samp variance""",
        "arrays, maps and structs": """
            array array_append array_compact array_contains array_distinct array_except array_insert array_intersect
            array_join array_max array_min array_position array_prepend array_remove array_repeat array_size
            array_union arrays_overlap arrays_zip cardinality concat element_at flatten get map map_concat
            map_contains_key map_entries map_from_arrays map_from_entries map_keys map_values named_struct
            reverse sequence shuffle size slice sort_array str_to_map struct try_element_at""",
        "bits": "& << >> >>> ^ bit_count bit_get getbit shiftleft shiftright shiftrightunsigned | ~",
        "bitmaps": "bitmap_bit_position bitmap_bucket_number bitmap_count",
        "conditions": "between coalesce if ifnull nanvl nullif nullifzero nvl nvl2 when zeroifnull",
        "conversions": """
            bigint binary boolean cast date decimal double float int smallint string timestamp tinyint""",
        "csv and json": """
            from_csv from_json get_json_object json_array_length json_object_keys json_tuple schema_of_csv
            schema_of_json to_csv to_json""",
        "dates and times": """
            add_months convert_timezone curdate current_date current_timestamp current_timezone date_add
            date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart
            day dayname dayofmonth dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day
            localtimestamp make_date make_dt_interval make_interval make_timestamp make_timestamp_ltz
            make_timestamp_ntz make_ym_interval minute month monthname months_between next_day now quarter
            second session_window time_bucket timestamp_micros timestamp_millis timestamp_seconds
            to_date to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp
            to_utc_timestamp trunc try_make_interval try_make_timestamp try_make_timestamp_ltz
            try_make_timestamp_ntz try_to_date try_to_timestamp unix_date unix_micros unix_millis
            unix_seconds unix_timestamp weekday weekofyear window window_time year""",
        "encryption with a given key": "aes_decrypt aes_encrypt try_aes_decrypt",
        "errors on purpose": "assert_true raise_error",
        "functions of functions": """
            aggregate array_sort exists filter forall map_filter map_zip_with reduce transform transform_keys
            transform_values zip_with""",
        "geography": "st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid",
        "hashes": "crc32 hash md5 sha sha1 sha2 xxhash64",
        "mathematics": """
            % * + - / abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot
            csc degrees div e exp expm1 factorial floor greatest hex hypot least ln log log10 log1p log2 mod
            negative pi pmod positive pow power radians rand randn random rint round sec sign signum sin sinh
            sqrt tan tanh try_add try_divide try_mod try_multiply try_subtract unhex uniform width_bucket""",
        "predicates": """
            ! < <= <=> = == > >= and equal_null ilike in isnan isnotnull isnull like not or regexp regexp_like
            rlike""",
        "rows to several": "explode explode_outer inline inline_outer posexplode posexplode_outer stack",
        "sketches": """
            approx_top_k_estimate hll_sketch_estimate hll_union kll_sketch_get_n_bigint kll_sketch_get_n_double
            kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
            kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double
            kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
            kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float theta_difference
            theta_intersection theta_sketch_estimate theta_union tuple_difference_double
            tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
            tuple_intersection_double tuple_intersection_integer tuple_intersection_theta_double
            tuple_intersection_theta_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
            tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double
            tuple_sketch_theta_integer tuple_union_double tuple_union_integer tuple_union_theta_double
            tuple_union_theta_integer""",
        "strings": """
            ascii base64 bit_length btrim char char_length character_length chr collate collation concat_ws
            contains decode elt encode endswith find_in_set format_number format_string initcap instr
            is_valid_utf8 lcase left len length levenshtein locate lower lpad ltrim luhn_check make_valid_utf8
            mask octet_length overlay position printf quote randstr regexp_count regexp_extract
            regexp_extract_all regexp_instr regexp_replace regexp_substr repeat replace right rpad rtrim
            sentences soundex space split split_part startswith substr substring substring_index to_binary
            to_char to_number to_varchar translate trim try_to_binary try_to_number try_validate_utf8 ucase
            unbase64 upper validate_utf8""",
        "urls, taken apart and never opened": "parse_url try_parse_url try_url_decode url_decode url_encode",
        "variants": """
            is_valid_variant is_variant_null parse_json schema_of_variant to_variant_object try_parse_json
            try_variant_get variant_get""",
        "vectors": """
            vector_avg vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize
            vector_sum""",
        "windows": "cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number",
        "about the query itself, its session and the files of the table": """
            current_catalog current_database current_path current_schema current_user input_file_block_length
            input_file_block_start input_file_name monotonically_increasing_id session_user spark_partition_id
            typeof user uuid version""",
    }.items()
}

# Functions used as tables: each makes rows from its arguments, or lists what is built into Spark.
TABLE_FUNCTIONS: Final = _names(
    """
    collations explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range
    sql_keywords stack variant_explode variant_explode_outer
    """
)

# Refused functions by reason. Everything else that is not allowed is refused as well.
FUNCTIONS_REFUSED: Final[dict[str, frozenset[str]]] = {
    reason: _names(names)
    for reason, names in {
        "calls Java": "java_method reflect try_reflect",
        "reads a file of descriptors, or takes classes from outside": """
            from_avro from_protobuf schema_of_avro to_avro to_protobuf""",
        "parses XML, whose schema may be a file": """
            from_xml schema_of_xml to_xml xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long
            xpath_number xpath_short xpath_string""",
        "reads another table, or Spark's own state": "python_worker_logs table_changes table_changes_by_path",
        "needs a metric view, and there is none": "measure",
        "needs the type TIME, which Spark has switched off": """
            current_time make_time time time_diff time_from_micros time_from_millis time_from_seconds time_to_micros
            time_to_millis time_to_seconds time_trunc to_time try_to_time""",
    }.items()
}

ALLOWED_FUNCTIONS: Final = frozenset[str]().union(*FUNCTIONS.values())


VIEW = "messages"
_SUBSTITUTE = "spark.sql.variable.substitute"

Scope = frozenset[str]  # names of the statement's own queries (WITH) and of relations beside the table, in lower case


def parse_query(spark: SparkSession, statement: str, relations: Iterable[str] = ()) -> JavaObject:
    """Spark's parsed plan of `statement`, which only reads `messages`.

    `relations` are the names, in lower case, of what else it may read.

    Raises
    ------
    OptionError
        It contains something that is not known to only read.
    PySparkException
        Spark's parser does not understand it.
    """
    session: Any = spark._jsparkSession  # noqa: SLF001  the parser has no Python API
    jvm: Any = spark._jvm  # noqa: SLF001
    jvm.SparkSession.setActiveSession(session)  # the parser uses the settings of this thread's active session
    with _no_substitution(spark):
        plan: JavaObject = session.sessionState().sqlParser().parsePlan(statement)
    check_plan(plan, frozenset(relations))
    return plan


@contextmanager
def _no_substitution(spark: SparkSession) -> Iterator[None]:
    """Leave ``${env:NAME}`` and ``${system:NAME}`` as plain text."""
    before = spark.conf.get(_SUBSTITUTE)
    spark.conf.set(_SUBSTITUTE, "false")
    try:
        yield
    finally:
        spark.conf.set(_SUBSTITUTE, before or "true")


def check_plan(plan: JavaObject, relations: Scope = frozenset()) -> None:
    """Check every node and every value of a parsed plan against what is allowed.

    Raises
    ------
    OptionError
        One is not allowed; its name is in the message.
    """
    is_statement = _class_name(plan) in STATEMENT_NODES
    todo: list[tuple[Any, Scope]] = _fields(plan, relations) if is_statement else [(plan, relations)]
    nodes = QUERY_NODES | (STATEMENT_PARTS if is_statement else frozenset())
    while todo:
        value, scope = todo.pop()
        if isinstance(value, JavaObject):
            todo += _below(value, scope, nodes)


def _below(value: JavaObject, scope: Scope, nodes: frozenset[str]) -> list[tuple[Any, Scope]]:
    """What must be checked inside `value`; raise OptionError if `value` itself is not allowed."""
    name = _class_name(value)
    if name in nodes:
        kind = name.rpartition(".")[2]
        if kind == "Literal":  # a value and its type; a list of thousands of them is common
            return []
        _check_names(kind, value, scope)
        return _queries_of_with(value, scope) if kind == "UnresolvedWith" else _fields(value, scope)
    if name in PARTS:
        return _elements(value, scope)
    if name.startswith(COLLECTIONS):
        return _items(value, scope)
    if name in VALUES or name.startswith(DATA_TYPES):
        return []
    raise _refused(f"{_words(name)} is not among the statements and expressions that are known to only read")


def _class_name(value: JavaObject) -> str:
    return str(value.getClass().getName())


def _elements(product: JavaObject, scope: Scope) -> list[tuple[Any, Scope]]:
    return [(product.productElement(index), scope) for index in range(product.productArity())]


def _fields(node: JavaObject, scope: Scope) -> list[tuple[Any, Scope]]:
    """A node's fields, with those of its second parameter list."""
    return [*_elements(node, scope), *_items(node.otherCopyArgs(), scope)]


def _items(collection: JavaObject, scope: Scope) -> list[tuple[Any, Scope]]:
    found, iterator = [], collection.iterator()
    while iterator.hasNext():
        found.append((iterator.next(), scope))
    return found


def _queries_of_with(node: JavaObject, scope: Scope) -> list[tuple[Any, Scope]]:
    """A query of WITH sees those before it, and itself if they are recursive; what follows WITH sees all."""
    found: list[tuple[Any, Scope]] = []
    for query, _ in _items(node.cteRelations(), scope):
        name, plan, *more = (value for value, _ in _elements(query, scope))
        known = scope | {_folded(name)}
        found += [(value, known if node.allowRecursion() else scope) for value in (plan, *more)]
        scope = known
    return [*found, (node.child(), scope), *_items(node.otherCopyArgs(), scope)]


def _check_names(kind: str, node: JavaObject, scope: Scope) -> None:
    """Check the table or the function that a node names."""
    if kind == "UnresolvedRelation":
        _check_table(_parts(node.multipartIdentifier()), scope)
        if node.isStreaming() or not node.options().isEmpty():
            raise _refused(f"{VIEW} is read as it is: no stream of it, no options")
    elif kind == "UnresolvedTableOrView":
        _check_table(_parts(node.multipartIdentifier()), frozenset())
    elif kind == "UnresolvedFunction":
        _check_function(_parts(node.nameParts()), ALLOWED_FUNCTIONS)
    elif kind == "UnresolvedFunctionName":
        _check_function(_parts(node.multipartIdentifier()), ALLOWED_FUNCTIONS | TABLE_FUNCTIONS)
    elif kind == "UnresolvedTableValuedFunction":
        _check_function(_parts(node.name()), TABLE_FUNCTIONS)
    elif kind == "UnresolvedGenerator":
        _check_function(node.name().unquotedString().split("."), TABLE_FUNCTIONS)


def _check_table(parts: list[str], scope: Scope) -> None:
    if len(parts) != 1 or _folded(parts[0]) not in {VIEW, *scope}:
        name = ".".join(f"`{part}`" for part in parts)
        raise _refused(f"the only table is {VIEW}, besides the statement's own WITH queries; found {name}")


def _check_function(parts: list[str], names: frozenset[str]) -> None:
    if len(parts) != 1 or _folded(parts[0]) not in names:
        raise _refused(f"function {'.'.join(parts)} is not among those that are known to only compute or read here")


def _folded(name: str) -> str:
    """The name in lower case; one beyond ASCII stays as it is, since languages fold it in different ways."""
    return name.lower() if name.isascii() else name


def _parts(names: JavaObject) -> list[str]:
    return [str(name) for name, _ in _items(names, frozenset())]


def _words(class_name: str) -> str:
    return class_name.rpartition(".")[2].partition("$")[0].removeprefix("Unresolved")


def _refused(what: str) -> OptionError:
    return OptionError(f"refused: {printable(what)} (docs/commands/sql.md)")
